// Package kafka drives consumers on Kafka.
//
// A [brokers.Conn] is a light client that signs in, asks and administers, and a
// second one, made on demand, that publishes. A subscription is a client of its
// own: one member of one group for one epoch. The clients reconnect by
// themselves; a connection is never lost, only silent.
//
// # How records come
//
// One goroutine polls, no more than a waiting Receive asked for, and books what
// it gets in [tracker]s: one for each partition and assignment. The client keeps
// rebalances away while a poll's result is looked at, so that a record is booked
// in the assignment that it was fetched in; no partition is ever waited for
// there. Nothing is copied: deliveries of a batch are one slice, and point into
// the client's records.
//
// # Positions
//
// A tracker holds a place for each record above its position, in the order of
// offsets; holes of the log (compacted and control records) are none. The
// position moves over what is acked without a gap, and one committer sends all
// positions that changed, one commit at a time. It sends them itself: the
// client's own commit waits while the group meets, which a slow member draws
// out. The broker checks who commits and not who owns what, so each request is
// put together under the lock that ends assignments, and every partition's
// answer is looked at. Positions carry the id of their topic: one of a topic
// that was deleted and made again is never used.
//
// A give-back moves no position. The client is told to fetch again from the
// lowest record given back, and what was acked above it is passed over. So a
// held intake costs no memory, keeps its membership, and repeats nothing.
//
// # Membership
//
// When partitions are revoked their intake ends, [brokers.Observer] finishes
// with them, their positions are committed, and their trackers retire: what is
// settled later is counted as lost. All of that ends in time for the group, at
// 0.6 of the rebalance timeout where everything is given up at each rebalance,
// else at half of the session timeout. Partitions that are lost are dropped.
//
// A client that was expelled joins again under another member id, and may go on
// with its partitions as if nothing had happened, though others have had them
// and committed. Then every partition begins anew, at the group's position.
//
// # Losses
//
// The client never goes on past a loss. Where a position is not in the log, the
// log was cut, or a topic is another than it was, the spec's `reset` decides:
// FAIL ends the subscription with the partition and the range in its words, the
// others go on there and set the condition DATA_LOSS.
//
// # Outages
//
// While no broker answers, the condition CONNECTED says so, and the subscription
// goes on when one does. After a session timeout it ends with class Unreachable,
// for by then the group has given the partitions to others. A coordinator that
// refuses connections ends the membership at once (the client decides that), and
// records that were in hand come again.
package kafka
