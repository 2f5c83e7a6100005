package spec

import (
	"fmt"
	"strings"
)

const (
	maxSelector = 1024
	notEqual    = "!="
)

// Selector picks consumers by their labels. The zero value picks all.
type Selector struct{ terms []term }

// term is "key", "!key", "key=value" or "key!=value".
type term struct {
	key, value string
	// exact: the value is compared, else only whether the key is there.
	exact bool
	not   bool
}

// ParseSelector reads terms with commas between them, all of which must hold:
// "team=payments" (is), "tier!=free" (is not, or is missing), "eu" (is there),
// "!legacy" (is not there). Spaces around terms are left out; an empty
// selector picks all.
func ParseSelector(s string) (Selector, error) {
	if len(s) > maxSelector {
		return Selector{}, fmt.Errorf("the selector is longer than %d bytes", maxSelector)
	}
	if strings.TrimSpace(s) == "" {
		return Selector{}, nil
	}
	var out Selector
	for part := range strings.SplitSeq(s, ",") {
		t, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return Selector{}, err
		}
		out.terms = append(out.terms, t)
	}
	return out, nil
}

func parseTerm(s string) (term, error) {
	t := term{key: s}
	if key, value, ok := strings.Cut(s, notEqual); ok {
		t = term{key: key, value: value, exact: true, not: true}
	} else if key, value, ok := strings.Cut(s, "="); ok {
		t = term{key: key, value: value, exact: true}
	} else if key, ok := strings.CutPrefix(s, "!"); ok {
		t = term{key: key, not: true}
	}
	if len(t.key) > maxName || len(t.value) > maxName || !labelKeyForm.MatchString(t.key) || !labelValueForm.MatchString(t.value) {
		return term{}, fmt.Errorf("selector term %q: write key=value, key!=value, key or !key, with a comma between two", clip(s))
	}
	return t, nil
}

// Matches tells whether all terms hold.
func (s Selector) Matches(labels map[string]string) bool {
	for _, t := range s.terms {
		value, ok := labels[t.key]
		if t.exact {
			ok = ok && value == t.value
		}
		if ok == t.not {
			return false
		}
	}
	return true
}

// String is the selector as ParseSelector reads it.
func (s Selector) String() string {
	parts := make([]string, len(s.terms))
	for i, t := range s.terms {
		switch {
		case t.exact && t.not:
			parts[i] = t.key + notEqual + t.value
		case t.exact:
			parts[i] = t.key + "=" + t.value
		case t.not:
			parts[i] = "!" + t.key
		default:
			parts[i] = t.key
		}
	}
	return strings.Join(parts, ",")
}
