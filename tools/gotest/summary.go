package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of "go test -json"; see "go doc test2json".
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"`
	Test    string `json:"Test"`
	Output  string `json:"Output"`
}

// test names one test of one package; Test "" is the package itself.
type test struct{ pkg, name string }

// summary reads events and prints what is worth reading of them.
type summary struct {
	w       io.Writer
	output  map[test]*strings.Builder
	ran     map[string]int // per package, subtests included
	failed  int
	skipped []test
	tallies []string // what tests say that they met: lines that begin with "tally: ", and conformance suites
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: map[test]*strings.Builder{}, ran: map[string]int{}}
}

// read takes all events up to the end of r.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (s *summary) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil { // not an event: go's own words
		fmt.Fprintf(s.w, "%s", line)
		return
	}
	s.add(e)
}

func (s *summary) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "output":
		s.say(t, e.Output)
		for _, mark := range []string{": brokertest: ", ": tally: "} {
			if _, what, ok := strings.Cut(e.Output, mark); ok {
				s.tallies = append(s.tallies, t.name+": "+what)
			}
		}
	case "pass", "fail", "skip":
		s.end(t, e.Action)
	}
}

// say keeps what a test printed until it is known whether it failed. Of a
// package only its closing line is of interest while all goes well, but a panic
// or a leaked goroutine is told here as well.
func (s *summary) say(t test, text string) {
	b := s.output[t]
	if b == nil {
		b = &strings.Builder{}
		s.output[t] = b
	}
	b.WriteString(text)
}

func (s *summary) end(t test, action string) {
	text := ""
	if b := s.output[t]; b != nil {
		text = b.String()
	}
	delete(s.output, t)
	switch {
	case t.name == "" && action == "fail":
		s.rest(t.pkg)
		fmt.Fprint(s.w, text)
	case t.name == "":
		fmt.Fprint(s.w, closing(text))
	default:
		s.ran[t.pkg]++
		if action == "fail" {
			s.failed++
		}
		if action == "skip" {
			s.skipped = append(s.skipped, t)
		}
		if action != "pass" {
			fmt.Fprint(s.w, text)
		}
	}
}

// rest prints what tests of a package said that never came to an end, because
// the process did.
func (s *summary) rest(pkg string) {
	for _, t := range slices.SortedFunc(maps.Keys(s.output), compare) {
		if t.pkg == pkg {
			fmt.Fprint(s.w, s.output[t].String())
			delete(s.output, t)
		}
	}
}

func compare(a, b test) int { return strings.Compare(a.pkg+"\x00"+a.name, b.pkg+"\x00"+b.name) }

// closing is the last line of a package that went well.
func closing(text string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	return lines[len(lines)-2]
}

// close prints the counts and says what is wrong with them.
func (s *summary) close() error {
	total := 0
	fmt.Fprintln(s.w)
	for _, pkg := range slices.Sorted(maps.Keys(s.ran)) {
		fmt.Fprintf(s.w, "%6d  %s\n", s.ran[pkg], pkg)
		total += s.ran[pkg]
	}
	for _, text := range slices.Sorted(slices.Values(s.tallies)) {
		fmt.Fprint(s.w, text)
	}
	fmt.Fprintf(s.w, "%6d tests ran, subtests included: %d failed, %d skipped\n", total, s.failed, len(s.skipped))
	switch {
	case len(s.skipped) > 0:
		names := make([]string, 0, len(s.skipped))
		for _, t := range s.skipped {
			names = append(names, t.pkg+": "+t.name)
		}
		return fmt.Errorf("%d tests were skipped; make them run, or take them out:\n  %s", len(names), strings.Join(names, "\n  "))
	case s.failed > 0:
		return fmt.Errorf("%d tests failed", s.failed)
	case total == 0:
		return errors.New("no test ran: are the package patterns and -run right?")
	}
	return nil
}
