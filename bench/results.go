package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
)

// report is what a benchmark found, on its way to the screen and to a section
// of a file of results.
type report struct {
	title string
	lines []string
	head  []string
	rows  [][]string
	notes []string
}

func (r *report) row(cells ...string) { r.rows = append(r.rows, cells) }

func (r *report) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// publish shows r on w and, with a path, puts it there in the place of what
// the file says under the same title.
func (r *report) publish(w io.Writer, path string) error {
	if err := r.text(w); err != nil || path == "" {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the results so far: %w", err)
	}
	if err := os.WriteFile(path, []byte(r.into(string(old))), 0o644); err != nil { //nolint:gosec // documentation
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func (r *report) text(w io.Writer) error {
	for _, l := range append([]string{r.title}, r.lines...) {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{r.head}, r.rows...) {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range r.notes {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return err
		}
	}
	return nil
}

const resultsHead = `# Results

Written by ` + "`go run ./bench NAME -results bench/RESULTS.md`" + `; each section is one run, as it came out.
A load average above the number of CPUs means that other programs ran: rates and latencies of that run
say little then, allocations and bytes as much as ever.
`

const sectionMark = "\n## "

// into replaces or adds r's section in a file of results.
func (r *report) into(file string) string {
	if !strings.HasPrefix(file, resultsHead) {
		file = resultsHead
	}
	sections := strings.Split(strings.TrimRight(file, "\n"), sectionMark)
	mine := strings.TrimRight(r.markdown(), "\n")
	for i, s := range sections[1:] {
		if title, _, _ := strings.Cut(s, "\n"); title == r.title {
			sections[i+1] = mine + "\n"
			return joinSections(sections)
		}
	}
	return joinSections(append(sections, mine))
}

func joinSections(sections []string) string {
	for i, s := range sections {
		sections[i] = strings.TrimRight(s, "\n") + "\n"
	}
	return strings.Join(sections, sectionMark)
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.title)
	for _, l := range r.lines {
		fmt.Fprintf(&b, "%s  \n", l)
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(r.head, " | "), strings.Repeat("---|", len(r.head)))
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, n := range r.notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	return b.String()
}

// Cells of the tables.

func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func ratio(c comparison) string { return fmt.Sprintf("%.3f (%.2f-%.2f)", c.ratio, c.low, c.high) }

func verdict(ok bool) string {
	if ok {
		return "reached"
	}
	return "NOT reached"
}
