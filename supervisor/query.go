package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// bookmarkEvery is how often a quiet watcher is told the revision.
const bookmarkEvery = 10 * time.Second

// Get returns one consumer, with the figures of this moment.
func (s *Supervisor) Get(namespace, name string) (*pb.Consumer, error) {
	c, err := s.find(namespace, name)
	if err != nil {
		return nil, err
	}
	return c.snapshot(), nil
}

// List returns a page of consumers in the order of namespace and name.
func (s *Supervisor) List(r *pb.ListRequest) (*pb.ListResponse, error) {
	sel, err := spec.ParseSelector(r.GetSelector())
	if err != nil {
		return nil, invalid("selector", err.Error())
	}
	size := int(r.GetPageSize())
	switch {
	case size < 0 || size > 1000:
		return nil, invalid("page_size", "0 to 1000")
	case size == 0:
		size = 500
	}
	after, err := parseToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &pb.ListResponse{Revision: s.hub.now()}
	for _, c := range s.all() {
		if compareKeys(c.key, after) <= 0 || !c.in(r.GetNamespace(), sel) {
			continue
		}
		if len(r.GetStates()) > 0 && !slices.Contains(r.GetStates(), c.view.Load().state.Public()) {
			continue
		}
		if len(out.GetConsumers()) == size {
			last := out.GetConsumers()[size-1].GetSpec()
			out.NextPageToken = last.GetNamespace() + "/" + last.GetName()
			break
		}
		out.Consumers = append(out.Consumers, c.snapshot())
	}
	return out, nil
}

func parseToken(t string) (key, error) {
	if t == "" {
		return key{}, nil
	}
	ns, name, ok := strings.Cut(t, "/")
	if !ok {
		return key{}, invalid("page_token", "not one that List returned")
	}
	return key{ns, name}, nil
}

// in says whether the consumer is of a namespace ("*": any) and a selector.
func (c *consumer) in(namespace string, sel spec.Selector) bool {
	return inScope(c.key, c.rec.Load(), namespace, sel)
}

func inScope(k key, rec *pb.Consumer, namespace string, sel spec.Selector) bool {
	return (namespace == everywhere || k.namespace == namespaceOr(namespace)) && sel.Matches(rec.GetSpec().GetLabels())
}

// Watch hands what is, then SYNCED, then each change to send, until ctx ends
// or send fails. With since_revision it resumes there, without a snapshot. It
// ends with SLOW_WATCHER when send is too slow.
func (s *Supervisor) Watch(ctx context.Context, r *pb.WatchRequest, send func(*pb.WatchResponse) error) error {
	sel, err := spec.ParseSelector(r.GetSelector())
	if err != nil {
		return invalid("selector", err.Error())
	}
	match := func(c *consumer, rec *pb.Consumer) bool {
		return inScope(c.key, rec, r.GetNamespace(), sel) && (len(r.GetNames()) == 0 || slices.Contains(r.GetNames(), c.key.name))
	}
	rev := r.GetSinceRevision()
	shown := map[*consumer]uint64{} // by the snapshot, which may be ahead of rev
	if rev == 0 {
		rev = s.hub.now()
		if shown, err = s.sendAll(rev, match, send); err != nil {
			return err
		}
	} else if _, _, ok := s.hub.after(rev, 0); !ok {
		return errorf(pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED,
			"revision %d is no longer kept: watch again from the beginning", rev)
	}
	t := time.NewTicker(bookmarkEvery)
	defer t.Stop()
	return s.hub.follow(ctx, rev, func(e event) error {
		if !match(e.c, e.rec) || e.view != nil && e.revision <= shown[e.c] {
			return nil
		}
		return send(e.message())
	}, func(rev uint64) error {
		return send(&pb.WatchResponse{Revision: rev, Event: &pb.WatchResponse_Bookmark{Bookmark: &pb.Bookmark{}}})
	}, t.C)
}

// sendAll sends what is, then SYNCED, and returns the revision of each consumer
// as it was sent.
func (s *Supervisor) sendAll(rev uint64, match func(*consumer, *pb.Consumer) bool, send func(*pb.WatchResponse) error) (map[*consumer]uint64, error) {
	shown := map[*consumer]uint64{}
	for _, c := range s.all() {
		now := c.snapshot()
		if !match(c, now) {
			continue
		}
		if err := send(&pb.WatchResponse{Revision: rev, Event: &pb.WatchResponse_Consumer{Consumer: now}}); err != nil {
			return nil, err
		}
		shown[c] = now.GetStatus().GetRevision()
	}
	return shown, send(&pb.WatchResponse{Revision: rev, Event: &pb.WatchResponse_Synced{Synced: &pb.Synced{}}})
}

// InFlight lists the messages of one consumer that are taken and not settled,
// the oldest first.
func (s *Supervisor) InFlight(r *pb.ListInFlightRequest) (*pb.ListInFlightResponse, error) {
	c, err := s.find(r.GetNamespace(), r.GetName())
	if err != nil {
		return nil, err
	}
	limit := int(r.GetLimit())
	switch {
	case limit < 0 || limit > 1000:
		return nil, invalid("limit", "0 to 1000")
	case limit == 0:
		limit = 100
	}
	all, _ := c.pool.inFlightMessages()
	out := &pb.ListInFlightResponse{Total: int32(len(all))}
	for _, m := range all {
		if m.GetAge().AsDuration() < r.GetOlderThan().AsDuration() {
			continue
		}
		if len(out.GetMessages()) == limit {
			break
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

// CancelInFlight cancels the handler's context of one message; it burns no
// attempt and is tried again after a backoff. One that waits for its call is
// given back to the broker.
func (s *Supervisor) CancelInFlight(_ context.Context, actor string, r *pb.CancelInFlightRequest) (*pb.CancelInFlightResponse, error) {
	c, err := s.find(r.GetNamespace(), r.GetName())
	if err != nil {
		return nil, err
	}
	all, ds := c.pool.inFlightMessages()
	i := slices.IndexFunc(all, func(m *pb.InFlightMessage) bool { return m.GetId() == r.GetMessageId() })
	if i < 0 {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_NOT_FOUND, "no message %q is in flight in %s: list them with inflight", r.GetMessageId(), c.key)
	}
	if r.GetOptions().GetDryRun() {
		return &pb.CancelInFlightResponse{WasRunning: all[i].GetRunning()}, nil
	}
	c.log.Info("an operator cancels a message", "message", r.GetMessageId(), "actor", actor, "reason", r.GetOptions().GetReason())
	n := c.pool.cancelRunning(ErrCancelled, ds[i])
	if n == 0 {
		c.pool.giveBackOne(ds[i])
	}
	return &pb.CancelInFlightResponse{WasRunning: n > 0}, nil
}

// Receipts lists the receipts of one consumer, the newest first, or one by id.
func (s *Supervisor) Receipts(r *pb.ListReceiptsRequest) (*pb.ListReceiptsResponse, error) {
	c, err := s.find(r.GetNamespace(), r.GetName())
	if err != nil {
		return nil, err
	}
	limit := int(r.GetLimit())
	switch {
	case limit < 0 || limit > 100:
		return nil, invalid("limit", "0 to 100")
	case limit == 0:
		limit = 20
	}
	kept, err := s.o.Store.Receipts(c.key.namespace, c.key.name, store.MaxReceipts)
	if err != nil {
		return nil, storeReadError(err)
	}
	all := s.recorder.unwritten(c)
	slices.Reverse(all)
	all = append(all, kept...)
	if id := r.GetId(); id != "" {
		i := slices.IndexFunc(all, func(x *pb.Receipt) bool { return x.GetId() == id })
		if i < 0 {
			return nil, errorf(pb.ErrorReason_ERROR_REASON_NOT_FOUND, "%s has no receipt %q (yet)", c.key, id)
		}
		return &pb.ListReceiptsResponse{Receipts: all[i : i+1]}, nil
	}
	return &pb.ListReceiptsResponse{Receipts: all[:min(len(all), limit)]}, nil
}

// Transitions lists the last moves of one consumer, the newest last.
func (s *Supervisor) Transitions(r *pb.ListTransitionsRequest) (*pb.ListTransitionsResponse, error) {
	c, err := s.find(r.GetNamespace(), r.GetName())
	if err != nil {
		return nil, err
	}
	limit := int(r.GetLimit())
	switch {
	case limit < 0 || limit > 1000:
		return nil, invalid("limit", "0 to 1000")
	case limit == 0:
		limit = 100
	}
	rows, err := s.o.Store.Transitions(c.key.namespace, c.key.name, limit)
	if err != nil {
		return nil, storeReadError(err)
	}
	rows = append(rows, s.recorder.gathered(c)...)
	return &pb.ListTransitionsResponse{Transitions: rows[max(0, len(rows)-limit):]}, nil
}

// gathered are the moves of a consumer that are not written yet.
func (r *recorder) gathered(c *consumer) []*pb.Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*pb.Transition
	for _, row := range r.rows {
		if row.c == c {
			out = append(out, row.t)
		}
	}
	return out
}

func storeReadError(err error) error {
	if errors.Is(err, store.ErrClosed) {
		return errorf(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the daemon is shutting down")
	}
	return errorf(pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the state store cannot be read: %v", err)
}
