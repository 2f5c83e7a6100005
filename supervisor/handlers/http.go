package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"golang.org/x/net/http/httpguts"
)

// HTTP is the kind that posts each message to a URL as a CloudEvent in binary
// content mode; [eventHeader] says which headers a request has.
//
// The answer decides: 2xx acks; 429 and 503 retry, not before Retry-After (at
// most 1h); 408, 425 and other 5xx retry; other 4xx dead-letter. Redirects are
// not followed: a 3xx retries, for it is the spec that is wrong and not the
// message. So does a connection error, a call that timed out or was cancelled,
// and an answer that broke off, whatever its status: an answer counts when it
// is complete or its first 64 KiB are there.
//
// Never called, whatever a name resolves to: link-local, multicast and
// unspecified addresses. With limits.allowed_hosts only hosts listed there are
// called. Proxy settings of the environment are not used.
func HTTP(limits *supervisorv1.HttpLimits) supervisor.HandlerKind {
	k := httpKind{}
	for _, h := range limits.GetAllowedHosts() {
		k.allowed = append(k.allowed, normalHost(h))
	}
	return k
}

type httpKind struct {
	// allowed hosts, normal; empty: any.
	allowed []string
}

// normalHost makes spellings of one host equal.
func normalHost(h string) string {
	return strings.ToLower(strings.TrimSuffix(strings.Trim(h, "[]"), "."))
}

func (httpKind) Kind() string { return "http" }

func (k httpKind) Check(s *supervisorv1.ConsumerSpec) []brokers.Fault {
	spec := s.GetHandler().GetHttp()
	var faults []brokers.Fault
	if why := k.refusedURL(spec.GetUrl()); why != "" {
		faults = append(faults, brokers.Faultf("handler.http.url", "%s", why))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.GetHeaders())) {
		if why := refusedHeader(name, spec.GetHeaders()[name]); why != "" {
			faults = append(faults, brokers.Faultf(headerPath(name), "%s", why))
		}
	}
	return faults
}

// refusedURL says why a URL is not called, or "". It never repeats the URL,
// which may hold a secret.
func (k httpKind) refusedURL(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return "missing; write the endpoint's URL, such as http://billing.internal/orders"
	case err != nil || u.Hostname() == "":
		return "not a URL with a host; write one such as http://billing.internal/orders"
	case u.Scheme != "http" && u.Scheme != "https":
		return "the scheme must be http or https"
	case u.Port() != "" && !isPort(u.Port()):
		return "the port must be between 1 and 65535"
	case u.User != nil:
		return "holds a user or a password; put them into the header Authorization as env:NAME or file:PATH"
	case u.Fragment != "":
		return "has a fragment (#), which is never sent; leave it out"
	}
	return k.refusedHost(u.Hostname())
}

func (k httpKind) refusedHost(host string) string {
	if len(k.allowed) > 0 && !slices.Contains(k.allowed, normalHost(host)) {
		return fmt.Sprintf("host %q is not among the daemon's handlers.http.allowed_hosts (%s)",
			host, strings.Join(k.allowed, ", "))
	}
	if why := refusedLiteral(host); why != "" {
		return host + " is refused: it " + why
	}
	return ""
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// owner says whose a header is that a spec cannot set, or "".
func owner(canonical string) string {
	switch canonical {
	case "Host":
		return "the url"
	case "Content-Length", "Ce-Specversion", "Ce-Id", "Ce-Attempt", "Ce-Redelivered", "Ce-Droppedheaders":
		return "the message"
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect":
		return "the connection"
	}
	return ""
}

// isCredential tells of the headers that hold secrets by their nature.
func isCredential(canonical string) bool {
	switch canonical {
	case "Authorization", "Cookie", "X-Api-Key", "X-Auth-Token":
		return true
	}
	return false
}

// refusedHeader says why the spec may not set a header, or "". It never
// repeats the value.
func refusedHeader(name, value string) string {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return "not a header name: only letters, digits and !#$%&'*+-.^_`|~"
	case owner(canonical) != "":
		return "cannot be set: it belongs to " + owner(canonical)
	}
	return refusedValue(canonical, value)
}

func refusedValue(canonical, value string) string {
	switch {
	case isReference(value):
		if textform.CheckSecret(value) != nil {
			return "the reference is out of form; write env:NAME or file:PATH"
		}
	case isCredential(canonical):
		return "holds a secret; write env:NAME or file:PATH for the whole value"
	case !httpguts.ValidHeaderFieldValue(value):
		return "the value has a line break or another control character; leave it out"
	}
	return ""
}

func headerPath(name string) string { return textform.KeyPath("handler.http.headers", name) }

func isReference(value string) bool {
	return strings.HasPrefix(value, "env:") || strings.HasPrefix(value, "file:")
}

func (k httpKind) New(s *supervisorv1.ConsumerSpec, env supervisor.HandlerEnv) (supervisor.Handler, error) {
	spec := s.GetHandler().GetHttp()
	u, err := url.Parse(spec.GetUrl())
	if err != nil {
		return nil, errors.New("handler.http.url is not a URL")
	}
	h := &httpHandler{
		url:    u.String(),
		target: u.Scheme + "://" + u.Host + u.Path,
		source: "/supervisord/" + s.GetNamespace() + "/" + s.GetName(),
		log:    env.Log,
	}
	if err := h.resolve(spec.GetHeaders(), env.Secret); err != nil {
		return nil, err
	}
	h.transport, h.stopDialing = newTransport()
	return h, nil
}

// resolve reads the headers that the spec sets.
func (h *httpHandler) resolve(headers map[string]string, secret func(string) (string, error)) error {
	h.header = make(http.Header, len(headers)+1)
	var errs []error
	var redactions []string
	for name, value := range headers {
		if isReference(value) {
			v, err := secret(value)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", headerPath(name), err))
				continue
			case !httpguts.ValidHeaderFieldValue(v):
				errs = append(errs, fmt.Errorf(
					"%s: the value behind %s has a line break or another control character; leave it out", headerPath(name), value))
				continue
			case v != "":
				redactions = append(redactions, v, "[redacted]")
			}
			value = v
		}
		h.header.Set(name, value)
	}
	if _, own := h.header["User-Agent"]; !own {
		h.header.Set("User-Agent", "supervisord")
	}
	h.redact = strings.NewReplacer(redactions...)
	return errors.Join(errs...)
}

// httpHandler posts the messages of one consumer.
type httpHandler struct {
	url string
	// target is the url without its query, for errors.
	target string
	// source is the ce-source of messages that have none.
	source string
	// header holds what the spec sets; secrets among it.
	header http.Header
	// redact takes those secrets out of an answer that echoes them.
	redact *strings.Replacer

	transport   *http.Transport
	stopDialing context.CancelCauseFunc

	log *slog.Logger
	// warned once that headers are left out.
	warned atomic.Bool
}

// String keeps the secrets out of what is printed.
func (h *httpHandler) String() string { return "http handler for " + h.target }

// GoString keeps the secrets out of what is printed.
func (h *httpHandler) GoString() string { return h.String() }

func (h *httpHandler) Handle(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
	return h.post(ctx, m).outcome()
}

// Close closes the connections that no call uses; the others close with their
// call. It does not block.
func (h *httpHandler) Close() error {
	h.stopDialing(errClosed)
	h.transport.CloseIdleConnections()
	return nil
}

func (h *httpHandler) post(ctx context.Context, m *supervisor.Message) verdict {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(m.Body))
	if err != nil {
		return retry(err)
	}
	req.Header = h.requestHeader(m)
	// RoundTrip and no http.Client: no redirects, no cookies.
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return h.unanswered(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing depends on it
	return h.judge(ctx, resp)
}

func (h *httpHandler) requestHeader(m *supervisor.Message) http.Header {
	header, dropped := eventHeader(m, h.source)
	maps.Copy(header, h.header)
	// Not sent, but tells the transport that a request may be repeated: a
	// server that closed an idle connection costs no attempt.
	if _, own := header["Idempotency-Key"]; !own {
		header["Idempotency-Key"] = nil
	}
	if dropped > 0 && h.warned.CompareAndSwap(false, true) {
		h.log.Warn("message headers are not passed on: too many, too long or no text; ce-droppedheaders counts them (told once per start)",
			"message", m.ID(), "dropped", dropped)
	}
	return header
}

// unanswered is the verdict when no complete answer came. A call that was
// cancelled burns no attempt, which is the core's to know.
func (h *httpHandler) unanswered(ctx context.Context, err error) verdict {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within handler.timeout: %w", err)
	case ctx.Err() != nil:
		err = fmt.Errorf("cancelled: %w: %w", context.Cause(ctx), err)
	}
	return retry(fmt.Errorf("%s: %w", h.target, err))
}

// judge reads the answer, so that its connection can be used again.
func (h *httpHandler) judge(ctx context.Context, resp *http.Response) verdict {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// What follows is no answer, has no end and does not heed ctx.
		return retry(fmt.Errorf("%s answered %s, which nobody asked for", h.target, resp.Status))
	}
	body := io.LimitReader(resp.Body, maxAnswer)
	if resp.StatusCode/100 == 2 {
		if _, err := io.Copy(io.Discard, body); err != nil {
			return h.unanswered(ctx, fmt.Errorf("%s, but the answer broke off: %w", resp.Status, err))
		}
		return verdict{action: ack}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return h.unanswered(ctx, fmt.Errorf("%s, but the answer broke off: %w", resp.Status, err))
	}
	v := statusVerdict(resp.StatusCode, resp.Header)
	v.err = fmt.Errorf("%s answered %s%s", h.target, resp.Status, h.detail(resp, text))
	return v
}

// detail quotes what the answer says beside its status.
func (h *httpHandler) detail(resp *http.Response, body []byte) string {
	if resp.StatusCode/100 == 3 {
		return fmt.Sprintf(" to %q; redirects are not followed: put the final address into handler.http.url",
			excerpt(h.redact.Replace(resp.Header.Get("Location"))))
	}
	if len(body) == 0 {
		return ""
	}
	return fmt.Sprintf(": %q", excerpt(h.redact.Replace(string(body))))
}
