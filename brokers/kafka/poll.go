package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var errInterrupted = errors.New("something else is to be done first")

// chore is what the poller does next.
type chore uint8

const (
	rest chore = iota
	fetch
	direct // tell the client where to fetch and what to pause
	quit
)

// poll is the one goroutine that polls. While a poll's result is looked at no
// partition can come or go (BlockRebalanceOnPoll), so that every record is
// booked in the epoch that it was fetched in; it is never looked at for long.
//
// A held subscription polls on: so the client lets go of what it had buffered,
// and what ends the membership is heard.
func (s *subscription) poll() {
	defer close(s.polled)
	over, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	paused := false
	for {
		ctx, what, n := s.chore(paused)
		switch what {
		case quit:
			return
		case rest:
			<-s.steer
		case direct:
			// A poll that does not wait keeps rebalances away, as SetOffsets wants.
			s.book(s.client.PollRecords(over, 1))
			paused = s.direct(paused)
			s.client.AllowRebalance()
		case fetch:
			s.book(s.client.PollRecords(ctx, n))
			s.client.AllowRebalance()
		}
	}
}

// chore decides what to do next.
func (s *subscription) chore(paused bool) (context.Context, chore, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, quit, 0
	case s.held != paused, s.held && s.repause, !s.held && s.rewinding():
		return nil, direct, 0
	case !s.held && s.want == 0, len(s.buffer) > 0:
		return nil, rest, 0
	}
	ctx, cancel := context.WithCancelCause(s.life)
	s.stopPoll = cancel
	return ctx, fetch, max(s.want, 1)
}

// interrupt ends the poll under way; mu is held.
func (s *subscription) interrupt() {
	if s.stopPoll != nil {
		s.stopPoll(errInterrupted)
		s.stopPoll = nil
	}
	poke(s.steer)
}

// rewinding: the client is to fetch something again; mu is held.
func (s *subscription) rewinding() bool {
	for _, parts := range s.trackers {
		for _, t := range parts {
			if t.rewind != unknown && !t.revoking && !t.astray {
				return true
			}
		}
	}
	return false
}

// direct tells the client what to pause, or where to fetch and that it may.
func (s *subscription) direct(paused bool) bool {
	s.mu.Lock()
	held := s.held
	s.repause = false
	topics := make([]string, 0, len(s.topics))
	for name := range s.topics {
		topics = append(topics, name)
	}
	var offsets map[string]map[int32]kgo.EpochOffset
	var resumed []*tracker
	if !held {
		offsets, resumed = s.rewinds()
	}
	s.mu.Unlock()
	if held {
		s.client.PauseFetchTopics(topics...)
		return true
	}
	s.client.SetOffsets(offsets)
	if len(resumed) > 0 {
		s.client.ResumeFetchPartitions(byTopic(resumed))
	}
	if paused {
		s.client.ResumeFetchTopics(s.client.PauseFetchTopics()...)
	}
	return false
}

// rewinds are the offsets to fetch from again, and the partitions that wait for
// their gap, which what is fetched again makes smaller; mu is held.
func (s *subscription) rewinds() (map[string]map[int32]kgo.EpochOffset, []*tracker) {
	out := map[string]map[int32]kgo.EpochOffset{}
	var resumed []*tracker
	for topic, parts := range s.trackers {
		for p, t := range parts {
			if t.rewind == unknown || t.revoking || t.astray {
				continue
			}
			if out[topic] == nil {
				out[topic] = map[int32]kgo.EpochOffset{}
			}
			out[topic][p] = kgo.EpochOffset{Epoch: -1, Offset: t.rewound()}
			if t.paused {
				t.paused = false
				resumed = append(resumed, t)
			}
		}
	}
	return out, resumed
}

// book takes in what a poll brought.
func (s *subscription) book(fetches kgo.Fetches) {
	if len(fetches) == 0 {
		return
	}
	s.mu.Lock()
	buffer := make([]brokers.Delivery, 0, fetches.NumRecords())
	var failed []kgo.FetchError
	var full []*tracker
	for i := range fetches {
		for j := range fetches[i].Topics {
			ft := &fetches[i].Topics[j]
			parts := s.trackers[ft.Topic]
			for k := range ft.Partitions {
				fp := &ft.Partitions[k]
				if fp.Err != nil {
					failed = append(failed, kgo.FetchError{Topic: ft.Topic, Partition: fp.Partition, Err: fp.Err})
				}
				t := parts[fp.Partition]
				if t == nil || len(fp.Records) == 0 {
					continue
				}
				buffer = s.bookPartition(buffer, t, fp.Records)
				if !t.paused && t.freed == 0 && t.places.n >= s.src.maxGap {
					t.paused = true
					full = append(full, t)
				}
			}
		}
	}
	if len(buffer) > 0 {
		if len(s.buffer) > 0 {
			buffer = append(slices.Clip(s.buffer), buffer...)
		}
		s.buffer = buffer
		poke(s.wake)
	}
	s.mu.Unlock()
	if len(full) > 0 {
		s.client.PauseFetchPartitions(byTopic(full))
	}
	for _, f := range failed {
		s.fetchFailed(f)
	}
}

// bookPartition appends what is to be delivered; mu is held.
func (s *subscription) bookPartition(buffer []brokers.Delivery, t *tracker, records []*kgo.Record) []brokers.Delivery {
	switch {
	case t.revoking || t.astray || s.err != nil:
		return buffer
	case s.held || t.rewind != unknown:
		// The client is past these now; it is told to come back when it may.
		t.refetch(records[0].Offset)
		return buffer
	}
	for _, r := range records {
		switch t.admit(r) {
		case deliver:
			buffer = buffer[:len(buffer)+1]
			fill(&buffer[len(buffer)-1], t, r)
			if len(r.Headers) == 0 {
				r.Recycle() // a delivery needs the record for its headers only
			}
		case odd:
			go s.fail(&brokers.Error{
				Class: brokers.Transient, Op: s.op,
				Err:    fmt.Errorf("%s has a record at offset %d now, but had none before", t.origin.Name, r.Offset),
				Remedy: "it is read again from the committed position",
			})
			return buffer
		}
	}
	return buffer
}

// fetchFailed decides what an error of the client means.
func (s *subscription) fetchFailed(f kgo.FetchError) {
	err := f.Err
	if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	if session, ok := errors.AsType[*kgo.ErrGroupSession](err); ok {
		s.groupFailed(session.Err)
		return
	}
	loss, lost := errors.AsType[*kgo.ErrDataLoss](err)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		s.lose(f.Topic, f.Partition, nil)
	case lost:
		s.lose(f.Topic, f.Partition, loss)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		s.c.ask4()
	case f.Topic == "":
		s.fail(classify(s.op, err))
	default:
		s.fail(s.unreadable(f))
	}
}

// unreadable: one partition cannot be read on. To go on without it, or past
// what is broken, would skip records unseen.
func (s *subscription) unreadable(f kgo.FetchError) error {
	op := "read " + partitionName(f.Topic, f.Partition)
	if f.Partition < 0 {
		op = "read topic " + f.Topic
	}
	e, ok := classify(op, f.Err).(*brokers.Error) //nolint:errorlint // classify made it
	if ok && e.Class == brokers.Transient {
		e.Remedy = "the partition is read again from the committed position; if a record there is corrupt, `supctl seek` passes it"
	}
	return e
}
