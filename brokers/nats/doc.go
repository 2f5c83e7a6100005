// Package nats drives consumers on NATS JetStream.
//
// A [brokers.Conn] is one nats.go connection that all consumers of a daemon's
// connection share; it reconnects by itself, for ever. A subscription is one
// durable pull consumer for one epoch. It speaks the pull protocol itself
// instead of through jetstream.Consume: only so is what the server may send
// bounded by the credit of Receive, in messages and in bytes, with no buffer
// in between in which a message could time out unseen.
//
// # How messages come
//
// A subscription owns an inbox: one subject, one reader. Receive asks for
// messages with MSG.NEXT requests whose replies go to that inbox; each request
// is a [pull], and the server ends each with a status that tells what it did
// not use, so that requested, held and free credit always add up. Holding
// withdraws the inbox: without interest the server drops the open requests, and
// the answer to a ping behind the withdrawal proves that nothing more comes.
//
// # How outcomes go
//
// Acks, naks and extensions leave through one writer per connection. nats.go
// writes under its connection's lock and blocks there while the server does not
// read, for as long as its write deadline: no caller's goroutine may run into
// that, so none ever publishes itself.
//
// The server handles the acknowledgements of one consumer in the order of their
// arrival, one at a time, and answers those that carry a reply subject once
// they are done (processInboundAcks and processAck in nats-server's
// consumer.go; on a replicated consumer an ack is answered when a majority has
// it, and proposals keep their order). So the answer to one proves all before
// it. The writer asks for one answer per batch and subscription; [ledger]
// keeps what has no proof yet.
//
// # What JetStream cannot do
//
// Proven means handled by the server, not written by it: it writes a durable's
// acks up to 100 ms later (flushLoop of consumerFileStore in filestore.go), also
// when it syncs every message. A server that is killed in between delivers those
// messages again. What Close learns of that it reports as WillRepeat.
//
// Messages given back come again in the order of the stream, before new ones,
// as long as one subscription works the durable. They do not when the server
// had taken one for a request whose inbox was withdrawn at that moment: it
// requeues that message ahead of what is given back after it. In a cluster such
// a message can also get lost on a route between two servers; it then comes
// again after ack_wait. Nothing gets lost for good either way.
package nats
