package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// paint is a colour of a cell.
type paint string

const (
	plain  paint = ""
	red    paint = "\x1b[31m"
	green  paint = "\x1b[32m"
	yellow paint = "\x1b[33m"
	cyan   paint = "\x1b[36m"
	dim    paint = "\x1b[2m"
	reset        = "\x1b[0m"
)

// cell is one field of a table.
type cell struct {
	text  string
	paint paint
}

// text makes a cell of any string, also one that came from a broker.
func text(s string) cell { return cell{text: oneLine(s)} }

func painted(p paint, s string) cell { return cell{text: oneLine(s), paint: p} }

// table is rows of cells under titles, in columns as wide as they must be.
type table struct {
	titles    []string
	rows      [][]cell
	noHeaders bool
	// widths holds columns at least this wide, for rows that come later.
	widths []int
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

const columnGap = 2

// write prints the table. The last column is not padded.
func (t *table) write(w io.Writer, color bool) {
	widths := t.measure()
	if !t.noHeaders && len(t.titles) > 0 {
		titles := make([]cell, len(t.titles))
		for i, s := range t.titles {
			titles[i] = cell{text: s}
		}
		writeRow(w, titles, widths, color)
	}
	for _, r := range t.rows {
		writeRow(w, r, widths, color)
	}
}

func (t *table) measure() []int {
	widths := append([]int(nil), t.widths...)
	widen := func(i, n int) {
		for len(widths) <= i {
			widths = append(widths, 0)
		}
		widths[i] = max(widths[i], n)
	}
	if !t.noHeaders {
		for i, s := range t.titles {
			widen(i, utf8.RuneCountInString(s))
		}
	}
	for _, r := range t.rows {
		for i, c := range r {
			widen(i, utf8.RuneCountInString(c.text))
		}
	}
	return widths
}

func writeRow(w io.Writer, row []cell, widths []int, color bool) {
	var b strings.Builder
	pending := 0
	for i, c := range row {
		b.WriteString(strings.Repeat(" ", pending))
		if color && c.paint != plain && c.text != "" {
			b.WriteString(string(c.paint) + c.text + reset)
		} else {
			b.WriteString(c.text)
		}
		pending = widths[i] - utf8.RuneCountInString(c.text) + columnGap
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

// printable makes a string safe for a terminal: it stays in its line and
// cannot move the cursor, whatever a broker or a producer put into it.
func printable(s string) string {
	odd := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case odd(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine is printable in a single line.
func oneLine(s string) string {
	return printable(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
