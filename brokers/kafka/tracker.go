package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// unknown is no offset.
const unknown = -1

// tracker follows one partition for as long as it is assigned: its epoch. What
// was taken stands in places until everything below it is acked; only then the
// position moves. Its fields are guarded by its subscription's lock.
type tracker struct {
	sub       *subscription
	topic     string
	partition int32
	origin    *brokers.Origin
	// member is who was given the partition. A client that was expelled joins
	// again as another, and goes on as if nothing had happened.
	member string

	places places
	// position is what may be committed: behind the last of the records that are
	// acked without a gap; unknown before the first.
	position      int64
	positionEpoch int32
	// next is behind the highest record taken; unknown before the first.
	next int64
	// cursor is below next while records are fetched again.
	cursor int64
	// rewind is the lowest offset given back since the client was last told where
	// to fetch; unknown: none. Until it is told, what it brings is dropped.
	rewind int64
	// counts of places by state.
	freed, done int

	// committed is what the broker has confirmed; unknown: nothing.
	committed int64
	// passed counts acks that the position has moved over, proven those of them
	// that the broker has confirmed, told those that a report called unconfirmed.
	passed, proven, told int
	// doubtful: a commit got no answer, and may still arrive after a later one.
	doubtful bool

	// foreign: the committed position is of a topic that had the same name.
	foreign bool
	// losing: what was to be read next is gone. astray: it is being found out where
	// to go on, and what the client brings is dropped.
	losing, astray bool
	// revoking: nothing of it is delivered any more. retired: it is over.
	revoking, retired bool
	// paused: it waits for its gap to become smaller.
	paused bool
}

func newTracker(s *subscription, topic string, partition int32, index int, member string) *tracker {
	return &tracker{
		sub: s, topic: topic, partition: partition, member: member,
		origin:   &brokers.Origin{Name: partitionName(topic, partition), Index: index},
		position: unknown, positionEpoch: unknown, next: unknown, cursor: unknown, rewind: unknown, committed: unknown,
	}
}

func partitionName(topic string, partition int32) string {
	return topic + "/" + strconv.Itoa(int(partition))
}

// begin sets where a partition starts of which nothing was taken yet.
func (t *tracker) begin(offset int64) {
	t.position, t.next, t.cursor = offset, offset, offset
}

// verdict says what to do with a record that was fetched.
type verdict uint8

const (
	deliver verdict = iota
	// skip: it is with the caller, or acked.
	skip
	// odd: the log has a record where it had none before.
	odd
)

// admit books a record that the client brought; they come in the order of
// offsets, from where it was last told to fetch.
func (t *tracker) admit(r *kgo.Record) verdict {
	if t.next == unknown {
		t.begin(r.Offset)
	}
	if r.Offset >= t.next {
		if t.freed > 0 {
			t.vanish(t.places.n)
		}
		t.places.push(place{offset: r.Offset, epoch: r.LeaderEpoch, state: out})
		t.next = r.Offset + 1
		t.cursor = t.next
		return deliver
	}
	if t.freed > 0 {
		below, _ := t.places.find(r.Offset)
		t.vanish(below)
	}
	t.cursor = r.Offset + 1
	if r.Offset < t.position {
		return skip
	}
	i, found := t.places.find(r.Offset)
	if !found {
		return odd
	}
	p := t.places.at(i)
	if p.state != freed {
		return skip
	}
	p.state = out
	t.freed--
	return deliver
}

// vanish gives up what was given back below place i and was not fetched again:
// the log no longer has it.
func (t *tracker) vanish(i int) {
	from, _ := t.places.find(t.cursor)
	for ; from < i; from++ {
		if p := t.places.at(from); p.state == freed {
			p.state = vanished
			t.freed--
		}
	}
	t.advance()
}

// ack books what was handled; false: it is not out.
func (t *tracker) ack(offset int64) bool {
	i, found := t.places.find(offset)
	if !found {
		return false
	}
	p := t.places.at(i)
	if p.state != out {
		return false
	}
	p.state = done
	t.done++
	if i == 0 {
		t.advance()
	}
	return true
}

// advance moves the position over what is acked without a gap.
func (t *tracker) advance() {
	for t.places.n > 0 {
		p := t.places.at(0)
		switch p.state {
		case done:
			t.done--
			t.passed++
		case vanished:
		default:
			return
		}
		t.position, t.positionEpoch = p.offset+1, p.epoch
		t.places.pop()
	}
}

// free books what is given back; false: it is not out.
func (t *tracker) free(offset int64) bool {
	i, found := t.places.find(offset)
	if !found {
		return false
	}
	p := t.places.at(i)
	if p.state != out {
		return false
	}
	p.state = freed
	t.freed++
	t.refetch(offset)
	return true
}

// refetch has the client fetch again from an offset on, or from where it still
// is below that.
func (t *tracker) refetch(offset int64) {
	if t.cursor != unknown {
		offset = min(offset, t.cursor)
	}
	if t.rewind == unknown || offset < t.rewind {
		t.rewind = offset
	}
}

// rewound: the client was told where to fetch.
func (t *tracker) rewound() int64 {
	t.cursor = t.rewind
	t.rewind = unknown
	return t.cursor
}

// dirty: the broker does not know the position.
func (t *tracker) dirty() bool {
	return !t.retired && t.position != unknown && (t.position > t.committed || t.doubtful)
}

// unproven counts the acks up to mark whose arrival is neither confirmed nor
// already told as unconfirmed, and tells them.
func (t *tracker) unproven(mark int) int {
	n := mark - max(t.proven, t.told)
	if n <= 0 {
		return 0
	}
	t.told = mark
	return n
}

// waiting is what stands at the broker and was not taken, when the log ends at
// end.
func (t *tracker) waiting(end int64) int64 {
	return max(0, end-t.next) + int64(t.freed)
}
