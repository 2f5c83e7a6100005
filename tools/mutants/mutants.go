package main

// mutant is one mistake: new instead of old, which stands once in file. The
// tests of packages that match must find it.
type mutant struct {
	name     string
	file     string
	old, new string
	packages []string
	tests    string
}

const (
	core   = "./supervisor"
	kafka  = "./brokers/kafka"
	rabbit = "./brokers/rabbitmq"
	// fastKafka are the driver's tests without a real broker.
	fastKafka = "Tracker|Held|Storm|Late|Revoked|Expelled|Pause|InVirtualTime|Killed"
)

// mutants are the mistakes that everybody makes here, and some that were made.
func mutants() []mutant {
	return append(append(pathMutants(), actorMutants()...), driverMutants()...)
}

// pathMutants are mistakes in the message path.
func pathMutants() []mutant {
	return []mutant{
		{
			name: "ack before the handler returns", file: "supervisor/worker.go",
			old:      "return w.handler.Handle(it.ctx, it.d)",
			new:      "go w.handler.Handle(it.ctx, it.d)\n\treturn Ack()",
			packages: []string{core}, tests: "Receipt|Drain|Stop|Order",
		},
		{
			name: "settle what an epoch left that is over", file: "supervisor/worker.go",
			old:      "if it.state == gone || it.ep.fenced {",
			new:      "if false {",
			packages: []string{core}, tests: "Receipt|Case|Kill|Late|Simulation",
		},
		{
			name: "no bound of what is in flight", file: "supervisor/gate.go",
			old:      "free, room := p.cfg.maxMessages-p.inFlight, p.cfg.maxBytes-p.inFlightBytes",
			new:      "free, room := p.cfg.maxMessages, p.cfg.maxBytes",
			packages: []string{core}, tests: "Budget|Bound|InFlight|Simulation",
		},
		{
			name: "dead letters not confirmed before the ack", file: "supervisor/settle.go",
			old:      "err := p.publish(ctx, ep, batch)\n\t\tcancel()",
			new:      "_ = p.publish(ctx, ep, batch)\n\t\tvar err error\n\t\tcancel()",
			packages: []string{core}, tests: "DeadLetter|Simulation",
		},
		{
			name: "a gap given back below what was handled", file: "supervisor/item.go",
			old:      "return m.origin == d.Origin && d.Position < m.position",
			new:      "return m.origin == d.Origin && m.position < 0",
			packages: []string{core}, tests: ".",
		},
		{
			name: "items used again that a leaked handler holds", file: "supervisor/pool.go",
			old:      "it.slab.kept = true\n",
			new:      "",
			packages: []string{core}, tests: "Leak|Late|Abandon|Simulation",
		},
		{
			name: "a key's messages handled beside each other", file: "supervisor/item.go",
			old:      "return l.n > 0 && !l.blocked && (l.shared || !l.busy)",
			new:      "return l.n > 0 && !l.blocked",
			packages: []string{core}, tests: "Order|Key|Simulation",
		},
	}
}

// actorMutants are mistakes in lifecycle, verbs and store.
func actorMutants() []mutant {
	return []mutant{
		{
			name: "closed before the drain has ended", file: "supervisor/consumer.go",
			old:      "c.unreported > 0 || c.closeNow() || !c.pool.isQuiet() {",
			new:      "c.unreported > 0 || c.closeNow() {",
			packages: []string{core}, tests: "Drain|Receipt|Case|Simulation",
		},
		{
			name: "holds lost at a restart", file: "supervisor/store/tx.go",
			old:      "lasting.Status = nil\n",
			new:      "lasting.Status = nil\n\tlasting.Desired = &supervisorv1.Desired{State: c.GetDesired().GetState()}\n",
			packages: []string{core, "./supervisor/store"}, tests: "Hold|Restart|Durable|Store|Model",
		},
		{
			name: "start empty on a damaged store", file: "supervisor/store/store.go",
			old:      "if err := inspect(s.path); err != nil {\n\t\treturn err\n\t}",
			new:      "if err := inspect(s.path); err != nil {\n\t\tif err := errors.Join(os.Remove(s.path), create(s.path)); err != nil {\n\t\t\treturn err\n\t\t}\n\t}",
			packages: []string{"./supervisor/store"}, tests: ".",
		},
		{
			name: "a verb answered before it is durable", file: "supervisor/verbs.go",
			old:      "err := c.s.putConsumer(sctx, next)",
			new:      "var err error\n\tgo c.s.putConsumer(context.WithoutCancel(sctx), next)",
			packages: []string{core}, tests: "Durable|Crash|Simulation",
		},
		{
			name: "a lost connection closed under its subscriptions", file: "supervisor/link.go",
			old:      "if !c.lost || c.users > 0 {",
			new:      "if !c.lost {",
			packages: []string{core}, tests: "LostConnection",
		},
		{
			name: "what was taken still starts after a pause", file: "supervisor/gate.go",
			old:      "return finishGaps && p.gap(it) && !it.leaving",
			new:      "return finishGaps",
			packages: []string{core}, tests: ".",
		},
		{
			name: "a receipt without what will repeat", file: "supervisor/operation.go",
			old:      "WillRepeat: n.willRepeat - o.base.willRepeat,",
			new:      "WillRepeat: 0,",
			packages: []string{core}, tests: "Receipt|Case",
		},
	}
}

// driverMutants are mistakes in the drivers.
func driverMutants() []mutant {
	return []mutant{
		{
			name: "commit after the revoke", file: "brokers/kafka/rebalance.go",
			old:      "\t\tt.retired = true\n\t\ts.unconfirmed",
			new:      "\t\ts.unconfirmed",
			packages: []string{kafka}, tests: fastKafka,
		},
		{
			name: "records delivered while paused", file: "brokers/kafka/poll.go",
			old:      "case s.held || t.rewind != unknown:",
			new:      "case t.rewind != unknown:",
			packages: []string{kafka}, tests: fastKafka,
		},
		{
			name: "a poller that nobody wakes", file: "brokers/kafka/rebalance.go",
			old:      "\t\tpoke(s.steer)\n\t}\n\treturn out",
			new:      "\t}\n\treturn out",
			packages: []string{kafka}, tests: fastKafka,
		},
		{
			name: "released records not rewound", file: "brokers/kafka/tracker.go",
			old:      "\tt.refetch(offset)\n\treturn true",
			new:      "\treturn true",
			packages: []string{kafka}, tests: fastKafka,
		},
		{
			name: "a position committed over a gap", file: "brokers/kafka/tracker.go",
			old:      "\tif i == 0 {\n\t\tt.advance()\n\t}\n",
			new:      "\tt.position = offset + 1\n\tif i == 0 {\n\t\tt.advance()\n\t}\n",
			packages: []string{kafka}, tests: fastKafka,
		},
		{
			name: "one ack over unfinished tags", file: "brokers/rabbitmq/acks.go",
			old:      "for ; next != nil && next.state == pending; next = next.next {",
			new:      "for ; next != nil && next.state != written; next = next.next {",
			packages: []string{rabbit}, tests: "Ledger",
		},
		{
			name: "an ack after the epoch's end", file: "brokers/nats/subscription.go",
			old:      "\tif s.err != nil {\n\t\treturn fenced(s.err)\n\t}\n\tforeign := false",
			new:      "\tforeign := false",
			packages: []string{"./brokers/nats"}, tests: "Conformance",
		},
	}
}
