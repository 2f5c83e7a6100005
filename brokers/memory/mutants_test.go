package memory_test

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// mutants are the faults that a driver may have, and that the suite has to find.
func mutants() []mutant {
	return slices.Concat(receiveMutants(), errorMutants(), settleMutants(), holdMutants(), capabilityMutants(), connMutants())
}

func receiveMutants() []mutant {
	return []mutant{
		{name: "too many messages", kind: "acks", behaviour: "ReceiveWithinMessages", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				c.Messages++
				return s.Receive(ctx, c)
			})},
		{name: "too many bytes", kind: "acks", behaviour: "ReceiveWithinBytes", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				c.Bytes *= 2
				return s.Receive(ctx, c)
			})},
		{name: "loses a delivery", kind: "acks", behaviour: "ReceiveCancelled", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				batch, err := s.Receive(ctx, c)
				if len(batch) > 1 {
					batch = batch[:1]
				}
				return batch, err
			})},
		{name: "ends with ctx", kind: "acks", behaviour: "ReceiveCancelled", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				batch, err := s.Receive(ctx, c)
				if ctx.Err() != nil && err != nil {
					err = &brokers.Error{Class: brokers.Transient, Op: "receive", Err: err}
				}
				return batch, err
			})},
		{name: "returns nothing at once", kind: "acks", behaviour: "ReceiveWakes", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				if batch, err := s.Receive(ctx, c); err == nil {
					return batch, nil
				}
				return nil, nil
			})},
		{name: "acks at receipt", kind: "acks", behaviour: "CloseGivesBack", sub: receives(
			func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				batch, err := s.Receive(ctx, c)
				for i := range batch {
					err = errors.Join(err, s.Settle(ctx, []brokers.Settlement{{Delivery: &batch[i], Outcome: brokers.Ack}}))
				}
				return batch, err
			})},
	}
}

func errorMutants() []mutant {
	return []mutant{
		{
			name: "errors without class", kind: "acks", behaviour: "CutEndsReceive",
			sub: receiveErrors(func(e *brokers.Error) error { return e.Err }),
		},
		{
			name: "missing told as transient", kind: "acks", behaviour: "DeletedWhileIdle",
			sub: receiveErrors(func(e *brokers.Error) error {
				return &brokers.Error{Class: brokers.Transient, Op: e.Op, Err: e.Err}
			}),
		},
		{name: "one origin for all time", kind: "positions", behaviour: "AssignedAgainIsNew", sub: func(s brokers.Subscription) brokers.Subscription {
			first := make(map[string]*brokers.Origin)
			return receives(func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
				batch, err := s.Receive(ctx, c)
				for i := range batch {
					if o := first[batch[i].Origin.Name]; o != nil {
						batch[i].Origin = o
					}
					first[batch[i].Origin.Name] = batch[i].Origin
				}
				return batch, err
			})(s)
		}},
	}
}

func settleMutants() []mutant {
	return []mutant{
		{name: "settles when closed", kind: "acks", behaviour: "ClosedIsFenced", sub: twist(func(t *twisted) {
			t.settle = func(ctx context.Context, st []brokers.Settlement) error {
				err := t.Subscription.Settle(ctx, st)
				if brokers.ClassOf(err) == brokers.Fenced {
					return nil
				}
				return err
			}
		})},
		{name: "retry is ack", kind: "acks", behaviour: "RetryComesAgain", sub: outcomes(func(brokers.Outcome) brokers.Outcome { return brokers.Ack })},
		{name: "release is ack", kind: "positions", behaviour: "ReleaseComesAgain", sub: outcomes(func(o brokers.Outcome) brokers.Outcome {
			if o == brokers.Release {
				return brokers.Ack
			}
			return o
		})},
		{name: "acks up to the highest", kind: "acks", behaviour: "ReleaseComesAgain", sub: outcomes(func(brokers.Outcome) brokers.Outcome { return brokers.Ack })},
		{name: "retry does not wait", kind: "acks", behaviour: "RetryWaits", sub: twist(func(t *twisted) {
			t.settle = func(ctx context.Context, st []brokers.Settlement) error {
				for i := range st {
					st[i].AfterMillis = 0
				}
				return t.Subscription.Settle(ctx, st)
			}
		})},
		{name: "late ones are not told", kind: "acks", behaviour: "OwnershipLost", sub: reports(func(r *brokers.Report) { r.OwnershipLost = 0 })},
		{name: "unconfirmed ones are not told", kind: "acks", behaviour: "FrozenSettlesAreUnconfirmed", sub: reports(func(r *brokers.Report) { r.Unconfirmed = 0 })},
		{name: "repeats are not told", kind: "positions", behaviour: "CloseTellsRepeats", sub: reports(func(r *brokers.Report) { r.WillRepeat = 0 })},
		{name: "always released", kind: "acks", behaviour: "FrozenCloseGoesOn", sub: reports(func(r *brokers.Report) { r.Released = true })},
		{name: "never released", kind: "acks", behaviour: "CloseGivesBack", sub: reports(func(r *brokers.Report) { r.Released = false })},
		{name: "counts too few", kind: "acks", behaviour: "HoldGivesBack", sub: reports(func(r *brokers.Report) { r.Returned = 0 })},
		{name: "counts too many", kind: "acks", behaviour: "HoldGivesBack", sub: reports(func(r *brokers.Report) { r.Returned *= 2 })},
	}
}

func holdMutants() []mutant {
	ackAll := func(ctx context.Context, s brokers.Subscription, ds []*brokers.Delivery) {
		for _, d := range ds {
			_ = s.Settle(ctx, []brokers.Settlement{{Delivery: d, Outcome: brokers.Ack}})
		}
	}
	return []mutant{
		{name: "hold acks", kind: "acks", behaviour: "HoldGivesBack", sub: twist(func(t *twisted) {
			t.hold = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
				ackAll(ctx, t.Subscription, ds)
				rep, err := t.Subscription.Hold(ctx, nil)
				rep.Returned = len(ds)
				return rep, err
			}
		})},
		{name: "hold keeps", kind: "positions", behaviour: "HoldGivesBack", sub: twist(func(t *twisted) {
			t.hold = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
				rep, err := t.Subscription.Hold(ctx, nil)
				rep.Returned = len(ds)
				return rep, err
			}
		})},
		{name: "hold goes on taking", kind: "acks", behaviour: "HoldWhileReceiveBlocks", sub: twist(func(t *twisted) {
			t.hold = func(context.Context, []*brokers.Delivery) (brokers.Report, error) {
				return brokers.Report{Released: true}, nil
			}
		})},
		{name: "flow does nothing", kind: "acks", behaviour: "FlowFetchesAtOnce", sub: twist(func(t *twisted) {
			t.flow = func(context.Context) error { return nil }
		})},
		{name: "close acks", kind: "acks", behaviour: "CloseGivesBack", sub: twist(func(t *twisted) {
			t.close = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
				ackAll(ctx, t.Subscription, ds)
				rep, err := t.Subscription.Close(ctx, nil)
				rep.Returned = len(ds)
				return rep, err
			}
		})},
		{name: "close reports twice", kind: "acks", behaviour: "CloseTwice", sub: twist(func(t *twisted) {
			t.close = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
				rep, err := t.Subscription.Close(ctx, ds)
				rep.Returned = len(ds)
				return rep, err
			}
		})},
	}
}

func capabilityMutants() []mutant {
	return []mutant{
		{name: "leaks a goroutine", kind: "acks", behaviour: "GoroutinesEnd", sub: func(s brokers.Subscription) brokers.Subscription {
			go func() { select {} }()
			return s
		}},
		{name: "lag is late", kind: "acks", behaviour: "FrozenCallsEnd", sub: twist(func(t *twisted) {
			t.lag = func(ctx context.Context) (brokers.Lag, error) { return t.Subscription.Lag(context.WithoutCancel(ctx)) }
		})},
		{name: "lag is made up", kind: "acks", behaviour: "Lag", sub: twist(func(t *twisted) {
			t.lag = func(context.Context) (brokers.Lag, error) { return brokers.Lag{}, nil }
		})},
		{name: "hides that give-backs count", kind: "quorum", behaviour: "GiveBackCounts", sub: caps(func(c *brokers.Capabilities) { c.GiveBackCounts = false })},
		{name: "claims that give-backs count", kind: "acks", behaviour: "GiveBackCounts", sub: caps(func(c *brokers.Capabilities) { c.GiveBackCounts = true })},
		{name: "claims membership", kind: "single active", behaviour: "MembershipWhileHeld", sub: caps(func(c *brokers.Capabilities) { c.Membership = true })},
		{name: "hides membership", kind: "acks", behaviour: "MembershipWhileHeld", sub: caps(func(c *brokers.Capabilities) { c.Membership = false })},
		{name: "hides positions", kind: "positions", behaviour: "CloseTellsRepeats", sub: caps(func(c *brokers.Capabilities) { c.Positions = false })},
		{name: "hides partitions", kind: "positions", behaviour: "PartitionsKeepOrder", sub: caps(func(c *brokers.Capabilities) { c.Partitions = false })},
		{name: "claims partitions", kind: "acks", behaviour: "CapabilitiesAreTold", sub: caps(func(c *brokers.Capabilities) { c.Partitions = true })},
		{name: "hides lag", kind: "acks", behaviour: "Lag", sub: caps(func(c *brokers.Capabilities) { c.Lag = false })},
		{name: "claims a hard bound", kind: "prefetch", behaviour: "HoldGivesBack", sub: caps(func(c *brokers.Capabilities) { c.MessagesHard = true })},
	}
}

func connMutants() []mutant {
	publish := func(f func(context.Context, brokers.Conn, []brokers.Publication) error) func(brokers.Conn) brokers.Conn {
		return func(c brokers.Conn) brokers.Conn {
			return publisher{c, func(ctx context.Context, ps []brokers.Publication) error { return f(ctx, c, ps) }}
		}
	}
	return []mutant{
		{name: "publishes without confirm", kind: "acks", behaviour: "PublishIsConfirmed", conn: publish(
			func(ctx context.Context, c brokers.Conn, ps []brokers.Publication) error {
				return c.Publish(ctx, ps[:len(ps)-1])
			})},
		{name: "drops headers", kind: "acks", behaviour: "PublishIsConfirmed", conn: publish(
			func(ctx context.Context, c brokers.Conn, ps []brokers.Publication) error {
				for i := range ps {
					ps[i].Headers = nil
				}
				return c.Publish(ctx, ps)
			})},
		{name: "unroutable is fine", kind: "acks", behaviour: "PublishWithoutTarget", conn: publish(
			func(ctx context.Context, c brokers.Conn, ps []brokers.Publication) error {
				_ = c.Publish(ctx, ps)
				return nil
			})},
		{name: "publishes for ever", kind: "acks", behaviour: "FrozenCallsEnd", conn: publish(
			func(ctx context.Context, c brokers.Conn, ps []brokers.Publication) error {
				return c.Publish(context.WithoutCancel(ctx), ps)
			})},
		{name: "logs the password", kind: "acks", behaviour: "ReceiveWakes", open: func(env brokers.Env) {
			password, _ := env.Secret("env:PASSWORD")
			env.Log.Debug("dialling", "password", password)
		}},
	}
}
