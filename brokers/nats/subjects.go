package nats

import "strings"

// badSubject says what is wrong with a subject; "" when it is fine. Wildcards
// are fine in filters only.
func badSubject(s string, wildcards bool) string {
	if s == "" {
		return "is empty; name a subject"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "has a space or control character in it; remove it"
	}
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return "has an empty token; remove the extra dot"
		case t == "*" || t == ">":
			if !wildcards {
				return "has a wildcard; name one subject"
			}
			if t == ">" && i < len(tokens)-1 {
				return "has > before its end; use * there"
			}
		}
	}
	return ""
}

// overlap tells whether any subject matches both filters.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(as) && i < len(bs); i++ {
		x, y := as[i], bs[i]
		if x == ">" || y == ">" {
			return true
		}
		if x != y && x != "*" && y != "*" {
			return false
		}
	}
	return len(as) == len(bs)
}

// loops returns the filter that would take s in again, or "".
func loops(s string, filters []string) string {
	for _, f := range filters {
		if overlap(s, f) {
			return f
		}
	}
	return ""
}
