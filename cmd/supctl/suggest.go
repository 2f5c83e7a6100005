package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc/codes"
)

// lookupTimeout bounds look-ups that are only a courtesy.
const lookupTimeout = 500 * time.Millisecond

// suggest adds the nearest name there is to an error about an unknown one.
func (c *client) suggest(ctx context.Context, k key, err error) error {
	e, ok := errors.AsType[*apiError](err)
	if !ok || e.code != codes.NotFound {
		return err
	}
	known, lookupErr := c.known(ctx, k.namespace)
	switch near := nearest(k.name, known); {
	case lookupErr != nil, slices.Contains(known, k.name): // It is something of the consumer that is unknown.
	case near != "":
		e.hint = fmt.Sprintf("did you mean %q?", near)
	default:
		e.hint = fmt.Sprintf("see 'supctl list -n %s'", k.namespace)
	}
	return e
}

// known lists the names of a namespace; at most a page, quickly or not at all.
func (c *client) known(ctx context.Context, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := c.consumers.List(ctx, &pb.ListRequest{Namespace: namespace, PageSize: 1000})
	return names(r.GetConsumers(), func(x *pb.Consumer) string { return x.GetSpec().GetName() }), err
}

func didYouMean(word string, of []string) string {
	if near := nearest(word, of); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// nearest is the word that is most probably meant; "" when none is near.
func nearest(word string, of []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, w := range of {
		if d := distance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, change or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
