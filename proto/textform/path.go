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

// split cuts a path into field names, map keys and indexes. Of a malformed one
// it gives what comes before the damage.
func split(path string) []string {
	var elems []string
	for path != "" {
		var elem string
		if path[0] == '[' {
			inner := path[1:]
			quoted, err := strconv.QuotedPrefix(inner)
			if err == nil {
				elem, _ = strconv.Unquote(quoted)
			} else if quoted, _, _ = strings.Cut(inner, "]"); quoted != "" {
				elem = quoted
			}
			path = strings.TrimPrefix(inner[len(quoted):], "]")
			if quoted == "" {
				return elems
			}
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			elem, path = path[:end], path[end:]
		}
		path = strings.TrimPrefix(path, ".")
		elems = append(elems, elem)
	}
	return elems
}

// within tells whether path is outer or below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
