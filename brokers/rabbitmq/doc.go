// Package rabbitmq drives consumers on RabbitMQ queues with amqp091-go.
//
// A [brokers.Conn] is a set of TCP connections: some for consumers, each shared by
// a bounded number of them, and one for publications. A subscription is a channel,
// on which it consumes under one tag after another: delivery tags count per channel,
// so that nothing an epoch says can be about a delivery of another. The library's
// own recovery is never used: it opens channels again under the same objects, whose
// delivery tags begin anew, and an old handler's ack would then be for another
// message.
//
// # What never blocks
//
// The library writes under a lock, its calls have no timeout, and when the broker
// does not answer they end with their connection, after one and a half heartbeats.
// So they run on goroutines of their own ([call], [subscription.inTurn]), and
// acknowledgements leave through one writer per connection ([outbox]). One call at a
// time is made on a channel: the answers to two get mixed up.
//
// # How outcomes go
//
// [ledger] lists a channel's deliveries in order. What is settled and has nothing
// unsettled below it goes as one multiple ack, once there are ack_batch.max of it or
// nothing else is under way. What is settled above a gap waits for ack_batch.linger
// and then goes alone, so that a handler that takes its time does not use up the
// prefetch. Failed messages and those given back go likewise.
//
// # What is proven
//
// A channel works off its methods in order, and ends when it meets a delivery tag
// that it does not know. So the answer to basic.qos, which changes nothing, proves
// all acknowledgements before it, and so does the answer to channel.close. Proven
// means that the channel has handed them to the queue. A broker that is killed at
// that moment may deliver those messages again.
//
// # Giving back
//
// Hold cancels and waits for the broker's answer, behind which nothing more is
// delivered, and then nacks: nacked before, a message would come right back. Close
// does not cancel: when a channel ends, the broker puts what was unsettled back to
// where it was before the queue's next consumer gets anything, while a cancelled
// single active consumer is replaced at once and overtaken.
//
// Quorum queues up to RabbitMQ 4.2 count each delivery that came back, however it
// did, and take the message away at a limit, which may be set by a policy that
// cannot be seen from here. From 4.3 they count what was rejected or lost with its
// channel, but not what was nacked: there Close nacks first.
//
// # What RabbitMQ cannot do
//
// A message cannot be kept from timing out: the broker ends the channel of a
// consumer that holds one for longer than consumer_timeout, 30 minutes by default.
// Rights are checked when consuming begins and not after. The prefetch counts for
// each consumption: after a Flow the broker may have sent so many messages on top of
// those that still run.
package rabbitmq
