package textform

import (
	"strconv"
	"strings"
)

// KeyPath is the path of an entry of the map at path: `labels["team"]`.
func KeyPath(path, key string) string { return path + "[" + strconv.Quote(key) + "]" }

func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func fieldPath(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// split cuts a path into field names, map keys and indexes; of one that is
// malformed it makes what it can.
func split(path string) []string {
	var elems []string
	for path != "" {
		var elem string
		elem, path = next(path)
		elems = append(elems, elem)
	}
	return elems
}

func next(path string) (elem, rest string) {
	inner, bracket := strings.CutPrefix(path, "[")
	if !bracket {
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		return path[:end], strings.TrimPrefix(path[end:], ".")
	}
	elem, rest, _ = strings.Cut(inner, "]")
	if quoted, err := strconv.QuotedPrefix(inner); err == nil {
		if key, err := strconv.Unquote(quoted); err == nil {
			elem, rest = key, strings.TrimPrefix(inner[len(quoted):], "]")
		}
	}
	return elem, strings.TrimPrefix(rest, ".")
}

// within tells whether path is outer or below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
