package rabbitmq

import (
	"errors"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// facts are what a queue turned out to be.
type facts struct {
	// kind is "quorum", "classic" or "stream"; "" when it could not be found out.
	kind string
	// autoDelete: the queue is deleted with its last consumer.
	autoDelete bool
}

// noKind is a queue type that no broker has.
const noKind = "supervisord-asks"

// probe finds out what a queue is. AMQP has no question for that, but a broker that
// is asked to declare a queue differently says how it is, and changes nothing; and it
// makes no queue of a type that it does not know. Each answer costs the channel that
// asked, and a line in the broker's log: hence once per source. Without the right to
// configure the queue nothing is found out.
func (l *link) probe(queue string) (facts, error) {
	for _, durable := range []bool{true, false} {
		ch, err := l.amqp.Channel()
		if err != nil {
			return facts{}, err
		}
		_, err = ch.QueueDeclare(queue, durable, false, false, false, amqp.Table{"x-queue-type": noKind})
		var said *amqp.Error
		switch {
		case !errors.As(err, &said):
			_ = ch.Close()
			return facts{}, err
		case said.Code != amqp.PreconditionFailed, !said.Server:
			return facts{}, nil
		case strings.Contains(said.Reason, "inequivalent arg 'durable'"):
			continue
		}
		return readFacts(said.Reason), nil
	}
	return facts{}, nil
}

// readFacts reads what the broker says of a declaration that differs.
func readFacts(reason string) facts {
	_, current, _ := strings.Cut(reason, " but current is ")
	switch {
	case strings.Contains(reason, "inequivalent arg 'auto_delete'"):
		return facts{kind: "classic", autoDelete: true}
	case !strings.Contains(reason, "inequivalent arg 'x-queue-type'"):
		return facts{}
	case current == "none":
		return facts{kind: "classic"} // declared without a type
	}
	return facts{kind: strings.Trim(current, "'")}
}

// isQuorum takes a queue whose kind is not known for what the spec says.
func (f facts) isQuorum(s *source) bool { return f.kind == "quorum" || f.kind == "" && s.quorum }

// look makes sure of what the source is, once.
func (s *subscription) look() error {
	f := s.src.facts.Load()
	if f == nil {
		found, err := s.l.probe(s.src.queue)
		if err != nil {
			return err
		}
		f = &found
		if f.kind != "" {
			s.src.facts.Store(f)
		}
	}
	if f.kind == "stream" {
		return &brokers.Error{
			Class: brokers.Refused, Op: s.op, Err: errors.New("the queue is a stream"),
			Remedy: "a stream keeps what was consumed and takes nothing back; consume a quorum or a classic queue",
		}
	}
	s.caps = s.src.capabilities(*f, s.l.version)
	s.quorum = f.isQuorum(s.src)
	s.nackFirst = s.quorum && !s.caps.GiveBackCounts
	return nil
}

// capabilities tells what the broker does for a queue.
func (s *source) capabilities(f facts, v version) brokers.Capabilities {
	quorum := f.isQuorum(s)
	c := brokers.Capabilities{
		Pause: "this consumer leaves the queue: its other consumers get the messages, and with none they wait",
		// A policy may set a limit that cannot be seen from here.
		GiveBackCounts: quorum && (v.nackCounts() || s.strict),
		OrderOnClose:   s.strict,
		Lag:            true,
	}
	switch {
	case f.autoDelete:
		c.NoPause = "the queue deletes itself, with its messages, when its last consumer leaves: stop the consumer if that may be, or use a queue that stays"
		c.Pause = "this consumer leaves the queue, which is deleted with its messages when no other consumer is left"
	case s.expires:
		c.Pause += ", until the queue's x-expires is over and it is deleted"
	case s.strict:
		c.Pause = "this consumer leaves the queue, and another of its consumers becomes the active one; with none the messages wait"
	case s.exclusive:
		c.Pause = "this consumer leaves the queue and gives up its exclusive right to it: whoever consumes first gets the messages"
	}
	return c
}
