package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// A secret is in no error, also when the endpoint echoes it, and in nothing
// that prints the handler.
func TestHTTPSecretsStayInside(t *testing.T) {
	const canary = "canary-4711"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The excerpt would end within the secret.
		http.Error(w, strings.Repeat("x", maxExcerpt-5)+r.Header.Get("Authorization"), http.StatusBadRequest)
	}))
	defer srv.Close()
	h := newHTTP(t, httpSpec(srv.URL+"/?key=query-4711", map[string]string{"Authorization": "file:token"}),
		map[string]string{"file:token": canary})
	got := h.post(t.Context(), message())
	if got.action != deadLetter {
		t.Fatalf("got %+v", got)
	}
	for _, text := range []string{got.err.Error(), fmt.Sprintf("%v %+v %s %#v", h, h, h, h)} {
		if strings.Contains(text, canary[:5]) || strings.Contains(text, "query-4711") {
			t.Errorf("a secret in %q", text)
		}
	}
}

func TestHTTPNewRefuses(t *testing.T) {
	env := supervisor.HandlerEnv{Secret: func(ref string) (string, error) {
		return lookup(map[string]string{"env:BROKEN": "canary\r\nX: y"}, ref)
	}}
	_, err := HTTP(nil).New(httpSpec("http://x/", map[string]string{"A": "env:BROKEN", "B": "env:NONE"}), env)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`headers["A"]`, "env:BROKEN has a line break", `headers["B"]`, "not exist"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the value is in %q", err)
	}
}

func TestHTTPCheck(t *testing.T) {
	limits := &supervisorv1.HttpLimits{AllowedHosts: []string{"Billing.internal.", "[::1]"}}
	for _, c := range []struct {
		url    string
		limits *supervisorv1.HttpLimits
		want   []string
	}{
		{"http://billing.internal/orders", nil, nil},
		{"https://127.0.0.1:8443", nil, nil},
		{"http://billing.INTERNAL:80/orders?a=b", limits, nil},
		{"http://[::1]:80", limits, nil},
		{"", nil, []string{"handler.http.url: missing"}},
		{"http://a b", nil, []string{"handler.http.url: not a URL with a host"}},
		{"billing/orders", nil, []string{"handler.http.url: not a URL with a host"}},
		{"ftp://billing", nil, []string{"handler.http.url: scheme"}},
		{"http:///orders", nil, []string{"handler.http.url: not a URL with a host"}},
		{"http://:80/", nil, []string{"handler.http.url: not a URL with a host"}},
		{"http://billing:0/", nil, []string{"handler.http.url: port"}},
		{"http://billing:99999/", nil, []string{"handler.http.url: port"}},
		{"http://user:canary@billing/", nil, []string{"handler.http.url: Authorization"}},
		{"http://billing/#a", nil, []string{"handler.http.url: fragment"}},
		{"http://other/", limits, []string{"handler.http.url: billing.internal, ::1"}},
		{"http://169.254.169.254/latest", nil, []string{"handler.http.url: link-local"}},
		{"http://[fe80::1%25eth0]/", nil, []string{"handler.http.url: link-local"}},
	} {
		got := HTTP(c.limits).Check(httpSpec(c.url, nil))
		wantFaults(t, got, c.want...)
		for _, f := range got {
			if strings.Contains(f.Message, "canary") {
				t.Errorf("a secret in %v", f)
			}
		}
	}
}

func TestHTTPCheckHeaders(t *testing.T) {
	wantFaults(t, HTTP(nil).Check(httpSpec("http://x/", map[string]string{
		"X-Ok":              "v",
		"Authorization":     "env:TOKEN",
		"x-api-key":         "canary",
		"transfer-encoding": "chunked",
		"HOST":              "x",
		"ce-id":             "1",
		"X-Lines":           "a\r\nb",
		"X-Ref":             "env:",
		"a b":               "x",
	})),
		`handler.http.headers["HOST"]: url`,
		`handler.http.headers["X-Lines"]: line break`,
		`handler.http.headers["X-Ref"]: out of form`,
		`handler.http.headers["a b"]: not a header name`,
		`handler.http.headers["ce-id"]: message`,
		`handler.http.headers["transfer-encoding"]: connection`,
		`handler.http.headers["x-api-key"]: env:NAME or file:PATH`,
	)
}
