// Package brokers says what a broker must do for a consumer, and nothing about
// how one does it: the drivers below this folder end all differences.
//
// A driver is four things: a [Driver] reads its part of the configuration and
// of a spec and opens connections; a [Conn] is one shared connection; a
// [Subscription] is one consumer's intake for one epoch; and every error that
// crosses this package is an [*Error], classified once, in the driver.
//
// Batches cross the contract, never single messages. Package brokertest holds
// every driver to each sentence written here.
package brokers

import (
	"context"
	"log/slog"
	"time"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Driver is one kind of broker. Its methods are safe for concurrent use.
type Driver interface {
	// Kind is the driver's name in specs and configuration ("nats"): the name
	// of its field in the oneofs Source.broker and Connection.broker.
	Kind() string

	// CheckConnection reports what is wrong with this driver's part of c, all
	// faults at once, with paths below the connection ("nats.urls[0]"). It does
	// no I/O.
	CheckConnection(c *supervisorv1.Connection) []Fault

	// Parse reads this driver's part of a spec that has its defaults filled in,
	// and reports all that is wrong with it, with paths from the spec's root
	// ("source.nats.stream"). It does no I/O.
	Parse(s *supervisorv1.ConsumerSpec) (Plan, []Fault)

	// Open connects. It returns within ctx, whatever the broker does. Open is
	// called again, by the caller and with backoff, after Conn.Lost is closed.
	Open(ctx context.Context, c *supervisorv1.Connection, env Env) (Conn, error)
}

// Plan is what a driver read from a spec.
type Plan struct {
	// Source is what Subscribe wants; only the driver looks inside.
	Source any
	// Origin names the source for people: "stream ORDERS".
	Origin string
	// DeadLetter is where to publish dead letters; nil without a target.
	DeadLetter Target
}

// Target is a place to publish to; only the driver looks inside. Its String
// names it for people: "subject orders.dead".
type Target interface{ String() string }

// Env is what the process lends to a driver.
type Env struct {
	// DataDir is a folder of the driver's own, made on demand; "" without one.
	DataDir string
	Log     *slog.Logger
	// Secret resolves "env:NAME" and "file:PATH". Call it at each dial, so that
	// rotated secrets are taken up.
	Secret func(ref string) (string, error)
}

// Conn is one connection, shared by many consumers. Its methods are safe for
// concurrent use and return within their context, whatever the broker does.
type Conn interface {
	// Subscribe begins to take from a source. The intake is open on return:
	// Receive fetches. The caller owns the subscription and must Close it, also
	// after it broke. When ctx ends first, nothing is left behind.
	Subscribe(ctx context.Context, source any, o Observer) (Subscription, error)

	// Publish sends and returns when the broker has confirmed every
	// publication as stored and routed; on an error any of them may or may not
	// have been stored. A target that is not there is Missing. It never shares a channel or connection on which a
	// blocked publisher would hold up acks.
	Publish(ctx context.Context, p []Publication) error

	// Err is nil while the connection is up, else why not. It does not block.
	Err() error

	// Lost is closed when this Conn is of no more use and Open must be called
	// again. A driver whose client reconnects by itself never closes it.
	Lost() <-chan struct{}

	// Close ends it. All subscriptions have been closed before.
	Close(ctx context.Context) error
}

// Positioner is a Conn whose sources keep positions that an operator may move.
type Positioner interface {
	// Seek moves the committed positions of a source that nobody consumes, and
	// returns each it moved. A partition whose position is that already is not
	// named; one that is not there is Missing. While the source has consumers it
	// is Refused and says who they are. On an error any of them may or may not
	// have been moved. With dry it returns what it would move and moves nothing.
	Seek(ctx context.Context, source any, to SeekTo, dry bool) ([]Moved, error)
}

// SeekTo is where to: exactly one of its fields is set.
type SeekTo struct {
	Earliest, Latest bool
	// Time: the first message published then or later; behind the last one
	// where there is none.
	Time time.Time
	// Positions by Origin.Name, or by the partition alone where the source has one
	// topic; -1 removes the committed position.
	Positions map[string]int64
}

// Moved is a position that a Seek moved: the next one to be consumed, or -1 for
// none.
type Moved struct {
	Origin        string
	Before, After int64
}

// Publication is one message to publish.
type Publication struct {
	Target  Target
	Key     []byte
	Body    []byte
	Headers []Header
	// ID makes a repeated publication recognisable where the broker can tell.
	ID string
}

// Header is one header; names may repeat.
type Header struct{ Name, Value string }

// Credit bounds one Receive. Both are at least 1.
type Credit struct {
	Messages int
	Bytes    int64
}

// Subscription is one consumer's intake. Its life is one epoch: a broken or
// closed one never delivers or settles again.
//
// Receive has one caller at a time; so have Hold, Flow and Close together.
// Settle and Lag may be called beside all of them and each other. Each returns
// within its context, also when the broker does not answer; what it then could
// not prove stands in the Report.
type Subscription interface {
	// Receive blocks until at least one delivery is there and returns what is
	// there, within max: never more than max.Messages, and never more than
	// max.Bytes but for a single message that is larger by itself. It blocks
	// while the intake is held. A delivery is returned once or given back; one
	// that arrives while ctx ends is kept for the next Receive, Hold or Close.
	// All deliveries of one Origin come in the broker's order.
	//
	// Everything returned, and everything the driver holds for a later Receive,
	// is kept from timing out at the broker until it is settled or given back.
	//
	// When ctx ends first the error is ctx's own, in no *Error. Any other ends
	// the subscription: it stays broken and is to be closed.
	Receive(ctx context.Context, max Credit) ([]Delivery, error)

	// Settle hands outcomes to the broker, in any order of deliveries. nil
	// means sent, not arrived: what has not arrived yet is proven or counted by
	// the next Hold or Close. It may coalesce and delay what it sends by some
	// milliseconds. A delivery that the broker has taken away meanwhile is
	// counted in Report.OwnershipLost and not an error. After the subscription
	// broke or was closed nothing is sent and the error is of class Fenced; any
	// other error breaks it.
	Settle(ctx context.Context, s []Settlement) error

	// Hold closes the intake and gives back: unstarted, and what the driver has
	// taken and not yet returned from Receive. The broker sees them unhandled.
	// Deliveries that are still with the caller stay settleable, and membership
	// is kept where the broker has one. It confirms all that was settled
	// before. Held twice it gives back what is new. It takes unstarted over
	// whatever it returns: after an error they are Close's to give back, but
	// not the caller's to name again, and no report counts them twice. When ctx
	// ends first it returns nil or ctx's error, and the Report says what is not
	// proven.
	Hold(ctx context.Context, unstarted []*Delivery) (Report, error)

	// Flow opens a held intake again and fetches at once. Where a give-back
	// moved a position, it begins at the lowest one given back and skips what
	// was handled. On an open intake it does nothing.
	Flow(ctx context.Context) error

	// Close gives back unsettled, which is all that the caller has not settled,
	// handlers that were given up on included, and all that the driver holds. It
	// confirms what was settled before, and releases what the broker keeps for this epoch;
	// positions stay. It never cuts what other subscriptions share. When ctx
	// ends first it returns what it knows, with Report.Released false, and goes
	// on in the background with deadlines of its own. That the subscription was
	// broken is no error of Close. Closed twice it reports nothing.
	Close(ctx context.Context, unsettled []*Delivery) (Report, error)

	// Lag asks the broker what waits there, taken by nobody. A broker may count a
	// little later than it delivers; where that takes seconds, or the count is no
	// count of messages, it is approximate.
	Lag(ctx context.Context) (Lag, error)

	// Capabilities tells what this broker does for this source, after looking. It
	// does not block. Only the words in Pause may change, with the partitions:
	// then the observer hears Condition ASSIGNED.
	Capabilities() Capabilities
}

// Finisher is a Subscription that can hand over what it has taken, to be finished,
// instead of giving it back. One whose GiveBackCounts is true should be: else what
// the broker sends while its consumer is stopped again and again is counted each
// time, and taken away without ever having been handled.
type Finisher interface {
	// Shut closes the intake as Hold does, and returns what the driver had taken and
	// not yet returned from Receive, whatever the credit was. A Hold follows. It has
	// one caller at a time together with Hold, Flow and Close. When ctx ends first it
	// returns what is there and ctx's error; what comes later is the next Hold's to
	// give back.
	Shut(ctx context.Context) ([]Delivery, error)
}

// Observer hears what the broker does to a subscription between two calls.
// Its methods are safe for concurrent use.
type Observer interface {
	// Revoke says that origins are being taken away: nothing of them starts any
	// more, gaps are finished, and it returns when nothing of them runs and all
	// is settled, or when ctx ends. Settlements of them that come later are
	// Fenced by the driver. It may be called on the driver's own goroutines.
	Revoke(ctx context.Context, origins []*Origin)
	// Condition sets a condition of the consumer. It does not block.
	Condition(t supervisorv1.ConditionType, on bool, reason string)
}

// Outcome is what is to become of a delivery at the broker.
type Outcome uint8

const (
	// Ack: handled (or dead-lettered and confirmed); never again.
	Ack Outcome = iota + 1
	// Retry: deliver it again, after Settlement.After where the broker can.
	Retry
	// Release: give it back as if it had never been delivered.
	Release
)

// Settlement is the outcome of one delivery.
type Settlement struct {
	Delivery *Delivery
	Outcome  Outcome
	// After, in milliseconds, with Retry.
	AfterMillis int64
}

// Report says what a Hold or a Close found out.
type Report struct {
	// Returned counts what was given back, the driver's own included.
	Returned int
	// Unconfirmed counts settlements whose arrival could not be proven.
	Unconfirmed int
	// OwnershipLost counts settlements since the last report that came after
	// the broker had taken the message away.
	OwnershipLost int
	// WillRepeat counts messages that were settled Ack and will be delivered
	// again all the same.
	WillRepeat int
	// Released: the broker confirmed all that was given back (and, after Close,
	// that it keeps nothing for this epoch).
	Released bool
}

// Lag is how far a consumer is behind.
type Lag struct {
	// Messages wait at the broker, taken by nobody.
	Messages    int64
	Approximate bool
	// Of a source with positions. Uncommitted is from the committed positions to
	// the ends of the partitions, as other tools see the lag; -1 while a partition
	// has no committed position. Gap is the longest way, among the partitions, from
	// the oldest message that is not finished to the newest that was taken: so much
	// of it may come again after a crash.
	Uncommitted, Gap int64
}

// Capabilities is what a broker does for one source.
type Capabilities struct {
	// Pause says in a sentence what pausing does here beyond this process.
	Pause string
	// Membership is kept while held.
	Membership bool
	// GiveBackCounts: each give-back counts towards a limit at which the broker
	// takes the message away unhandled. Pause and stop then finish what was
	// taken, until soft.
	GiveBackCounts bool
	// OrderOnClose: what is given back comes again in its order only when the
	// subscription is closed, because a held one lets another consumer begin
	// behind it. Pause and stop then finish what runs and close, without Hold.
	OrderOnClose bool
	// NoPause is why a pause is refused: it would destroy what waits. Empty: it is
	// not.
	NoPause string
	// Positions: the broker keeps one position per Origin instead of single
	// acks. What stands below the highest handled one is finished before a
	// give-back, so that nothing repeats.
	Positions bool
	// Partitions: the source has more than one Origin, and ordering PARTITION
	// makes sense.
	Partitions bool
	// MessagesHard and BytesHard tell whether Credit bounds exactly, or only
	// within what the client library buffers.
	MessagesHard, BytesHard bool
	// Lag is known.
	Lag bool
}
