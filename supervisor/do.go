package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/proto"
)

const (
	// doAtOnce bounds how many consumers one bulk verb moves at a time; their
	// store writes share commits.
	doAtOnce = 256
	// requestKept is how long a request id is remembered.
	requestKept = 24 * time.Hour
	// maxRequestID in bytes.
	maxRequestID = 128
	everywhere   = "*"
)

// Do carries a verb out on all consumers of its target, beside each other.
// With exactly one name a failure is the returned *Error; else it stands in
// that consumer's result. A repeated request id gets the first reply.
func (s *Supervisor) Do(ctx context.Context, cmd Command) ([]*pb.VerbResult, error) {
	if len(cmd.Options.GetRequestId()) > maxRequestID {
		return nil, invalid("options.request_id", "at most 128 bytes")
	}
	if s.closing.Load() {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the daemon is shutting down")
	}
	through, err := s.claim(ctx, cmd.Options.GetRequestId())
	if err != nil {
		return nil, err
	}
	defer through()
	mark := fingerprint(cmd)
	if done, err := s.repeated(cmd.Options.GetRequestId(), mark); done != nil || err != nil {
		return done, err
	}
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	if cmd.For > 0 {
		cmd.Until = time.Now().Add(cmd.For)
	}
	keys, err := s.resolve(cmd.Target)
	if err != nil {
		return nil, err
	}
	single := len(cmd.Target.GetNames()) == 1
	results, first := s.doEach(ctx, cmd, keys)
	if single && first != nil {
		return nil, first
	}
	if id := cmd.Options.GetRequestId(); id != "" && !cmd.Options.GetDryRun() {
		s.remember(ctx, id, mark, results)
	}
	return results, nil
}

// claim waits until no other request with this id is under way, so that a retry
// that overtakes the first gets its reply too. The caller calls through.
func (s *Supervisor) claim(ctx context.Context, id string) (through func(), err error) {
	if id == "" {
		return func() {}, nil
	}
	for {
		s.mu.Lock()
		other := s.requests[id]
		if other == nil {
			mine := make(chan struct{})
			s.requests[id] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.requests, id)
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Supervisor) doEach(ctx context.Context, cmd Command, keys []key) ([]*pb.VerbResult, error) {
	results := make([]*pb.VerbResult, len(keys))
	errs := make([]error, len(keys))
	slots := make(chan struct{}, doAtOnce)
	var wg sync.WaitGroup
	for i, k := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := s.find(k.namespace, k.name)
			if err == nil {
				results[i], err = c.do(ctx, cmd)
			}
			if err != nil {
				errs[i] = err
				results[i] = &pb.VerbResult{Namespace: k.namespace, Name: k.name, Error: itemError(err)}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// resolve finds the consumers that a target names.
func (s *Supervisor) resolve(t *pb.Target) ([]key, error) {
	var out []key
	switch {
	case len(t.GetNames()) > 0:
		for _, n := range t.GetNames() {
			k := key{namespaceOr(t.GetNamespace()), n}
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	default:
		sel, err := spec.ParseSelector(t.GetSelector())
		if err != nil {
			return nil, invalid("target.selector", err.Error())
		}
		for _, c := range s.all() {
			in := t.GetNamespace() == everywhere || c.key.namespace == namespaceOr(t.GetNamespace())
			if in && sel.Matches(c.rec.Load().GetSpec().GetLabels()) {
				out = append(out, c.key)
			}
		}
	}
	if want := t.ExpectedCount; want != nil && int(*want) != len(out) {
		return nil, &Error{
			Reason:  pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH,
			Message: fmt.Sprintf("%d consumers match, not the %d expected: nothing was done", len(out), *want),
			Metadata: map[string]string{
				"expected": strconv.Itoa(int(*want)), "matched": strconv.Itoa(len(out)),
			},
		}
	}
	return out, nil
}

// checkCommand refuses what makes no sense whatever the state.
func checkCommand(cmd Command) error {
	t := cmd.Target
	ways := 0
	for _, set := range []bool{len(t.GetNames()) > 0, t.GetSelector() != "", t.GetAll()} {
		if set {
			ways++
		}
	}
	switch {
	case ways == 0:
		return invalid("target", "name consumers, or give a selector, or set all")
	case ways > 1:
		return invalid("target", "names, selector and all exclude each other")
	case len(t.GetNames()) > 0 && t.GetNamespace() == everywhere:
		return invalid("target.namespace", "names need one namespace; \"*\" goes with a selector or all")
	case cmd.Options.GetEtag() != "" && len(t.GetNames()) != 1:
		return invalid("options.etag", "an etag goes with exactly one name")
	case cmd.Soft < 0 || cmd.Hard < 0:
		return invalid("soft", "limits must be positive")
	case cmd.Soft > 0 && cmd.Hard > 0 && cmd.Soft > cmd.Hard:
		return invalid("soft", fmt.Sprintf("soft (%s) must not be longer than hard (%s)", cmd.Soft, cmd.Hard))
	case cmd.Soft > 24*time.Hour || cmd.Hard > 24*time.Hour:
		return invalid("hard", "at most 24h")
	}
	return checkVerb(cmd)
}

func checkVerb(cmd Command) error {
	backlog := cmd.Mode == pb.DrainMode_DRAIN_MODE_BACKLOG
	switch cmd.Verb {
	case pb.Verb_VERB_DRAIN:
		if backlog && cmd.BacklogTimeout <= 0 {
			return invalid("backlog_timeout", "mode backlog needs to know how long consuming to the mark may take")
		}
		if !backlog && cmd.BacklogTimeout != 0 {
			return invalid("backlog_timeout", "goes with mode backlog only")
		}
	case pb.Verb_VERB_PAUSE:
		if cmd.For < 0 || cmd.For > 0 && !cmd.Until.IsZero() {
			return invalid("for", "a positive duration, and not beside until")
		}
		if !cmd.Until.IsZero() && !cmd.Until.After(time.Now()) {
			return invalid("until", "that moment has passed")
		}
	case pb.Verb_VERB_RESUME:
		if cmd.AllHolds && cmd.Hold != "" {
			return invalid("hold", "hold and all_holds exclude each other")
		}
	case pb.Verb_VERB_SCALE:
		if cmd.Concurrency < 0 || cmd.Concurrency > 10000 {
			return invalid("concurrency", "1 to 10000")
		}
	case pb.Verb_VERB_UNSPECIFIED, pb.Verb_VERB_SHUTDOWN:
		return invalid("verb", "not a verb")
	}
	if h := cmd.Hold; h != "" && !spec.IsName(h) {
		return invalid("hold", "a hold's name has a-z, 0-9 and '-', at most 63 bytes")
	}
	return nil
}

// fingerprint tells two requests with one id apart.
func fingerprint(cmd Command) []byte {
	h := sha256.New()
	o := proto.CloneOf(cmd.Options)
	if o == nil {
		o = &pb.VerbOptions{}
	}
	for _, m := range []proto.Message{cmd.Target, o} {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			continue
		}
		fmt.Fprintf(h, "%d:", len(b))
		h.Write(b)
	}
	fmt.Fprint(h, cmd.Verb, cmd.Actor, cmd.Hold, cmd.For, cmd.Until.UnixNano(), cmd.AllHolds, cmd.Soft, cmd.Hard,
		cmd.Mode, cmd.BacklogTimeout, cmd.Then, cmd.Concurrency, cmd.Force)
	return h.Sum(nil)
}

// repeated finds the reply to an earlier request with the same id.
func (s *Supervisor) repeated(id string, mark []byte) ([]*pb.VerbResult, error) {
	var out pb.PauseResponse // any verb's response: a list of results
	found, err := s.reply(id, mark, &out)
	if !found || err != nil {
		return nil, err
	}
	return out.GetResults(), nil
}

func (s *Supervisor) reply(id string, mark []byte, into proto.Message) (bool, error) {
	if id == "" {
		return false, nil
	}
	r, err := s.o.Store.Request(id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		s.o.Log.Warn("reading a request id", "error", err)
		return false, nil
	case string(r.Fingerprint) != string(mark):
		return false, errorf(pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED,
			"request id %q was used for another request: use a new one", id)
	}
	return true, proto.Unmarshal(r.Response, into)
}

// remember keeps the reply to a request. A failure is only logged: the verbs
// are idempotent.
func (s *Supervisor) remember(ctx context.Context, id string, mark []byte, results []*pb.VerbResult) {
	s.keepReply(ctx, id, mark, &pb.PauseResponse{Results: results})
}

func (s *Supervisor) keepReply(ctx context.Context, id string, mark []byte, m proto.Message) {
	b, err := proto.Marshal(m)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), urgentStore)
		defer cancel()
		err = s.o.Store.Update(ctx, func(tx *store.Tx) error {
			return tx.PutRequest(store.Request{ID: id, Fingerprint: mark, Response: b, Expires: time.Now().Add(requestKept)})
		})
	}
	if err != nil {
		s.o.Log.Warn("keeping the reply to a request id", "error", err)
	}
}

func newID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newEtag() string { return newID() }

func namespaceOr(ns string) string {
	if ns == "" {
		return "default"
	}
	return ns
}

func compareKeys(a, b key) int {
	return strings.Compare(a.namespace+"\x00"+a.name, b.namespace+"\x00"+b.name)
}
