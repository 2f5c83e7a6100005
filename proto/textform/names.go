package textform

import (
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ShortEnum is the name of an enum's value as people write it, without the
// enum's own prefix: "RUNNING"; the number when the schema does not know it.
func ShortEnum(e protoreflect.Enum) string { return shortName(e.Descriptor(), e.Number()) }

func shortName(ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	v := ed.Values().ByNumber(n)
	if v == nil {
		return strconv.Itoa(int(n))
	}
	return strings.TrimPrefix(string(v.Name()), enumPrefix(ed))
}

// enumPrefix is what all names of an enum begin with; the schema's lint makes
// the first one PREFIX_UNSPECIFIED.
func enumPrefix(ed protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(ed.Values().Get(0).Name()), "UNSPECIFIED")
}

type enumNames struct{ protoreflect.EnumDescriptor }

func shortNames(ed protoreflect.EnumDescriptor) enumNames { return enumNames{ed} }

func (e enumNames) all() iter.Seq2[string, protoreflect.EnumNumber] {
	return func(yield func(string, protoreflect.EnumNumber) bool) {
		for i := range e.Values().Len() {
			n := e.Values().Get(i).Number()
			if !yield(shortName(e, n), n) {
				return
			}
		}
	}
}

// words are the names that may be written: all but UNSPECIFIED.
func (e enumNames) words() []string {
	var names []string
	for name, n := range e.all() {
		if n != 0 {
			names = append(names, name)
		}
	}
	return names
}

// words joins names: "a, b or c".
func words(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	end := len(names) - 1
	return strings.Join(names[:end], ", ") + " " + last + " " + names[end]
}

// clip shortens what is repeated from a file.
func clip(s string) string {
	const limit = 64
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "..."
}

// nearest finds the name that was probably meant: the same but for case and
// separators, or at most a third of its letters away; "" when none is near.
func nearest(word string, names []string) string {
	if len(word) > 64 {
		return ""
	}
	a := bare(word)
	best, distance := "", len(word)
	for _, name := range names {
		b := bare(name)
		if n := edits(a, b); n < distance && n <= max(len(b)/3, 1) {
			best, distance = name, n
		}
	}
	return best
}

// bare is a name without case and separators.
func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// edits counts the bytes to insert, delete, replace or swap with the next one
// to make a into b.
func edits(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replace := row[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			next[j] = min(row[j]+1, next[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
