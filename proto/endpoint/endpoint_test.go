package endpoint

import (
	"strings"
	"testing"
)

func TestDefaultPath(t *testing.T) {
	for _, c := range []struct {
		name, runtimeDir string
		uid              int
		want             string
	}{
		{"a runtime folder wins", "/run/user/1000", 1000, "/run/user/1000/supervisord/supervisord.sock"},
		{"also for root", "/run/user/0", 0, "/run/user/0/supervisord/supervisord.sock"},
		{"a relative one is not valid", "run", 1000, "/tmp/supervisord-1000/supervisord.sock"},
		{"root", "", 0, "/run/supervisord/supervisord.sock"},
		{"a user", "", 1000, "/tmp/supervisord-1000/supervisord.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			getenv := func(k string) string {
				if k == "XDG_RUNTIME_DIR" {
					return c.runtimeDir
				}
				return ""
			}
			if got := defaultPath(getenv, c.uid, "/tmp"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestDefaultIsParsed(t *testing.T) {
	e, err := Parse(Default())
	if err != nil || e.Network != "unix" || e.String() != Default() {
		t.Errorf("Parse(%q) = %+v, %v", Default(), e, err)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]Endpoint{
		"unix:///run/a.sock":    {"unix", "/run/a.sock"},
		"unix:a.sock":           {"unix", "a.sock"},
		"/run/a.sock":           {"unix", "/run/a.sock"},
		"./a.sock":              {"unix", "./a.sock"},
		"localhost:7070":        {"tcp", "localhost:7070"},
		"tcp://[::1]:7070":      {"tcp", "[::1]:7070"},
		":7070":                 {"tcp", ":7070"},
		"tcp://10.0.0.1:0":      {"tcp", "10.0.0.1:0"},
		"unix:///" + "a/b c.so": {"unix", "/a/b c.so"},
	} {
		got, err := Parse(in)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", in, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", got.String(), again, err, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "HOST:PORT",
		"localhost":                         "missing port",
		"localhost:http":                    "0 to 65535",
		"localhost:70000":                   "0 to 65535",
		"https://a:1":                       "too many colons",
		"unix://":                           "names no socket",
		"unix:/" + strings.Repeat("a", 200): "shorter",
	} {
		e, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %+v, %v; want an error with %q", in, e, err, want)
		}
	}
}
