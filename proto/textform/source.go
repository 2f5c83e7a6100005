package textform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a file; its tree takes some fifty times as much memory.
const maxFile = 16 << 20

// parse reads the documents' roots; a file that is no YAML ends at the fault.
func (d *decoder) parse(data []byte) []*yaml.Node {
	if len(data) > maxFile {
		d.fault(1, 1, "", "is larger than 16MiB: split it into several files")
		return nil
	}
	if !d.checkText(data) {
		return nil
	}
	var roots []*yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && len(roots) == 0 && len(d.faults) == 0:
			d.fault(1, 1, "", "is empty: a document is expected")
			return nil
		case errors.Is(err, io.EOF):
			return roots
		case err != nil:
			d.syntax(data, err)
			return roots
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			d.faultAtf(&doc, "", "an empty document: write one, or remove the ---")
			continue
		}
		roots = append(roots, root)
	}
}

// checkText refuses what cannot stand in YAML at all, at its exact place.
func (d *decoder) checkText(data []byte) bool {
	for i := 0; i < len(data); {
		r, width := utf8.DecodeRune(data[i:])
		wrong := ""
		switch {
		case r == utf8.RuneError && width == 1:
			wrong = fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as UTF-8", data[i])
		case r == '\t', r == '\n', r == '\r' && i+1 < len(data) && data[i+1] == '\n':
		case r == '\r':
			wrong = "a carriage return without line feed: end lines with a line feed"
		// YAML takes some of these for line breaks and editors do not.
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp), r == 0xfffe, r == 0xffff:
			wrong = fmt.Sprintf("control character %U: remove it, or write it as an escape in double quotes", r)
		}
		if wrong != "" {
			line, column := place(data, i)
			d.fault(line, column, "", wrong)
			return false
		}
		i += width
	}
	return true
}

// place is the line and column of an offset.
func place(data []byte, offset int) (line, column int) {
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte{'\n'}), 1 + utf8.RuneCount(before[start:])
}

// where tells how to find the place of a complaint. The YAML parser's own line
// is right for what its scanner sees, else that of an enclosing structure, or
// none at all.
type where uint8

const (
	byLine where = iota
	byRead
	byLineRead
	byAlias
)

// remedies says the YAML parser's complaints in a user's words.
var remedies = []struct { //nolint:gochecknoglobals // a table
	complaint string
	where     where
	message   string
}{
	{"did not find expected key", byLineRead, `not YAML: this line is neither "key: value" nor indented like the lines around it`},
	{"did not find expected '-' indicator", byLineRead, `not YAML: a list item is expected here, "- " at the list's own indentation`},
	{"did not find expected <document start>", byLineRead, "not YAML: a new document begins with --- on a line of its own"},
	{"did not find expected ',' or ']'", byRead, "not YAML: the list in [ ] needs a , or its ] here"},
	{"did not find expected ',' or '}'", byRead, "not YAML: the mapping in { } needs a , or its } here"},
	{"did not find expected node content", byRead, "not YAML: a value is expected here"},
	{"unknown anchor", byAlias, "this alias has no anchor above it; a value that begins with * must be in quotes"},
	{"mapping values are not allowed", byLine, `not YAML: a second ": " in one line, or a line indented too deep: put the value in quotes, or align the line`},
	{"could not find expected ':'", byLine, `not YAML: a key needs ": " and its value`},
	{"tab character", byLine, "a tab: YAML is indented with spaces only"},
	{"cannot start any token", byLine, "not YAML: a value cannot begin with this character: put it in quotes"},
	{"found unexpected end of stream", byLine, "not YAML: this quoted text is never closed"},
}

var (
	complaintLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	anchorName    = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntax reports what the YAML parser complained about.
func (d *decoder) syntax(data []byte, err error) {
	found := complaintLine.FindStringSubmatch(err.Error())
	complaint, line := err.Error()[len(found[0]):], 1
	if n, err := strconv.Atoi(found[1]); err == nil {
		line = n
	}
	if tab := strings.IndexByte(indentation(data, line), '\t'); tab >= 0 {
		d.fault(line, tab+1, "", "a tab: YAML is indented with spaces only")
		return
	}
	column, message := len(indentation(data, line))+1, "not YAML: "+complaint
	for _, r := range remedies {
		if !strings.Contains(complaint, r.complaint) {
			continue
		}
		message = r.message
		switch r.where {
		case byLine:
		case byRead:
			line, column = place(data, readUntil(data))
		case byLineRead:
			line = firstComplaint(data, r.complaint)
			column = len(indentation(data, line)) + 1
		case byAlias:
			line, column = place(data, aliasAt(data, anchorName.FindStringSubmatch(complaint)))
		}
		break
	}
	d.fault(line, column, "", message)
}

// indentation is the white space that a line begins with.
func indentation(data []byte, line int) string {
	start, end := lineBounds(data, line)
	text := data[start:end]
	return string(text[:len(text)-len(bytes.TrimLeft(text, " \t"))])
}

// lookahead is how many characters the parser wants beyond the one it is at.
const lookahead = 4

// readUntil parses data once more, byte by byte, to see where the parser gave up.
func readUntil(data []byte) int {
	in := &byteReader{data: append(bytes.Clone(data), strings.Repeat("\n", lookahead)...)}
	parseAll(in) //nolint:errcheck // how far it read is the answer
	at := min(max(in.read-lookahead, 0), len(data))
	for at > 0 && (at == len(data) || data[at] == '\n' || data[at] == ' ') {
		at--
	}
	return at
}

func parseAll(in io.Reader) error {
	for dec := yaml.NewDecoder(in); ; {
		if err := dec.Decode(new(yaml.Node)); err != nil {
			return err
		}
	}
}

// firstComplaint finds the line that the parser complains about: it may have
// read on from there, so the last few lines are left away as long as it
// complains all the same.
func firstComplaint(data []byte, complaint string) int {
	line, _ := place(data, readUntil(data))
	for n := line; n > 1 && n > line-lookahead; n-- {
		_, end := lineBounds(data, n-1)
		if !strings.Contains(parseAll(bytes.NewReader(data[:end])).Error(), complaint) {
			return n
		}
	}
	return line
}

// lineBounds are the offsets of a line's first byte and of the next line's.
func lineBounds(data []byte, line int) (start, end int) {
	for ; line > 0; line-- {
		start = end
		if n := bytes.IndexByte(data[start:], '\n'); n >= 0 {
			end = start + n + 1
		} else {
			end = len(data)
		}
	}
	return start, end
}

// aliasAt finds the alias of an anchor that no line defines.
func aliasAt(data []byte, name []string) int {
	if name == nil {
		return 0
	}
	at := regexp.MustCompile(`(?m)(?:^|[\s,:\[{-])(\*` + regexp.QuoteMeta(name[1]) + `)(?:$|[\s,\]}:])`).FindSubmatchIndex(data)
	if at == nil {
		return 0
	}
	return at[2]
}

// byteReader hands out single bytes, so that its reader buffers none.
type byteReader struct {
	data []byte
	read int
}

func (r *byteReader) Read(p []byte) (int, error) {
	if r.read == len(r.data) {
		return 0, io.EOF
	}
	p[0] = r.data[r.read]
	r.read++
	return 1, nil
}
