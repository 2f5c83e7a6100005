package brokertest

import (
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func seeking() []behaviour {
	seek := func(f Features) bool { return f.Seek }
	return []behaviour{
		{name: "SeekMoves", run: seekMoves, needs: seek},
		{name: "SeekDryMovesNothing", run: seekDryMovesNothing, needs: seek},
		{name: "SeekToTime", run: seekToTime, needs: seek},
		{name: "SeekRefusedWhileConsumed", run: seekRefusedWhileConsumed, needs: seek},
		{name: "SeekNamesWhatIsNotThere", run: seekNamesWhatIsNotThere, needs: seek},
	}
}

func (r *run) trySeek(s *supervisorv1.ConsumerSpec, to brokers.SeekTo, dry bool) ([]brokers.Moved, error) {
	r.Helper()
	p, ok := r.conn.(brokers.Positioner)
	if !ok {
		r.Fatalf("the features declare Seek, but %T is no Positioner", r.conn)
	}
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	moved, err := p.Seek(ctx, r.plan(s).Source, to, dry)
	return moved, r.saw(err)
}

func (r *run) seek(s *supervisorv1.ConsumerSpec, to brokers.SeekTo, dry bool) []brokers.Moved {
	r.Helper()
	moved, err := r.trySeek(s, to, dry)
	r.ok("seek", err)
	return moved
}

// consumed makes a source of n messages that were all handled.
func (r *run) consumed(n int) (*supervisorv1.ConsumerSpec, []*brokers.Delivery) {
	r.Helper()
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	ds := i.receive(n)
	i.settle(brokers.Ack, ds...)
	i.end()
	r.settled(s)
	return s, ds
}

// again demands that exactly the messages from first on come, and handles them.
func (r *run) again(s *supervisorv1.ConsumerSpec, first, n int) {
	r.Helper()
	i := r.subscribe(s)
	ds := i.receive(n)
	if got := texts(ds); !slices.Equal(got, bodies(first, n)) {
		r.Errorf("after the seek %v came, want %v", got, bodies(first, n))
	}
	i.settle(brokers.Ack, ds...)
	i.quiet()
	i.end()
}

// one demands that one partition was moved.
func (r *run) one(moved []brokers.Moved, before, after int64) brokers.Moved {
	r.Helper()
	if len(moved) != 1 || moved[0].Before != before || moved[0].After != after || moved[0].Origin == "" {
		r.Fatalf("moved %+v, want one partition from %d to %d", moved, before, after)
	}
	return moved[0]
}

// Each way to say where to moves the position, says from where, and is undone by
// the position that was there.
func seekMoves(r *run) {
	s, ds := r.consumed(10)
	m := r.one(r.seek(s, brokers.SeekTo{Earliest: true}, false), 10, 0)
	if want := ds[0].Origin.Name; m.Origin != want {
		r.Errorf("the partition is called %q, in deliveries %q", m.Origin, want)
	}
	r.one(r.seek(s, brokers.SeekTo{Positions: map[string]int64{m.Origin: 10}}, false), 0, 10)
	if again := r.seek(s, brokers.SeekTo{Latest: true}, false); len(again) != 0 {
		r.Errorf("nothing was to be moved, but %+v", again)
	}
	r.one(r.seek(s, brokers.SeekTo{Positions: map[string]int64{m.Origin: 7}}, false), 10, 7)
	r.again(s, 7, 3)
	r.one(r.seek(s, brokers.SeekTo{Earliest: true}, false), 10, 0)
	r.again(s, 0, 10)
	r.settled(s)
}

// A dry seek tells what the real one does, and does nothing.
func seekDryMovesNothing(r *run) {
	s, _ := r.consumed(5)
	r.one(r.seek(s, brokers.SeekTo{Earliest: true}, true), 5, 0)
	r.remains(s, 0)
	r.one(r.seek(s, brokers.SeekTo{Earliest: true}, false), 5, 0)
	r.again(s, 0, 5)
}

// A time means the first message published then or later, and behind the last
// where there is none.
func seekToTime(r *run) {
	s, ds := r.consumed(6)
	at := ds[3].Published
	if at.IsZero() {
		r.Fatal("deliveries do not say when they were published")
	}
	first := slices.IndexFunc(ds, func(d *brokers.Delivery) bool { return !d.Published.Before(at) })
	r.one(r.seek(s, brokers.SeekTo{Time: at}, false), 6, int64(first))
	r.again(s, first, 6-first)
	if moved := r.seek(s, brokers.SeekTo{Time: ds[5].Published.Add(24 * time.Hour)}, false); len(moved) != 0 {
		r.Errorf("all was handled, but a seek behind the last moved %+v", moved)
	}
}

// Positions of what is being consumed are left alone.
func seekRefusedWhileConsumed(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 4)
	i := r.subscribe(s)
	ds := i.receive(2)
	_, err := r.trySeek(s, brokers.SeekTo{Earliest: true}, false)
	r.class("seek while it is consumed", err, brokers.Refused)
	i.settle(brokers.Ack, append(ds, i.receive(2)...)...)
	i.end()
	r.settled(s)
}

// A partition that is not there, or a position outside of one, is named, and
// nothing is moved.
func seekNamesWhatIsNotThere(r *run) {
	s, ds := r.consumed(3)
	origin := ds[0].Origin.Name
	_, err := r.trySeek(s, brokers.SeekTo{Positions: map[string]int64{"no-such/7": 1, origin: 0}}, false)
	r.class("seek in a partition that is not there", err, brokers.Missing)
	_, err = r.trySeek(s, brokers.SeekTo{Positions: map[string]int64{origin: 1000}}, false)
	r.class("seek behind the end", err, brokers.Refused)
	r.remains(s, 0)
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(context.Canceled)
	p, ok := r.conn.(brokers.Positioner)
	if !ok {
		r.Fatalf("%T is no Positioner", r.conn)
	}
	if _, err := p.Seek(ctx, r.plan(s).Source, brokers.SeekTo{Earliest: true}, false); err == nil {
		r.Error("a seek whose context has ended says nothing")
	}
}
