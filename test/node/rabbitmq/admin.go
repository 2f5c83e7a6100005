package rabbitmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// answerLimit bounds one call of the HTTP API.
const answerLimit = 10 * time.Second

// call asks the HTTP API for the path made of the parts. Nothing of it is left
// behind in this process.
func (n *Node) call(ctx context.Context, method string, out, in any, parts ...string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("body of the call: %w", err)
	}
	where := n.ManagementURL() + "/api/" + strings.Join(parts, "/")
	req, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("HTTP API: %w", err)
	}
	req.SetBasicAuth(User, Password)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("HTTP API: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("HTTP API: %s %s: %w", method, where, err)
	case resp.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("HTTP API: %s %s: %s: %s", method, where, resp.Status, answer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("HTTP API: %s %s: %w in %s", method, where, err, answer)
	}
	return nil
}

// AddUser adds a user without rights, or gives one a new password.
func (n *Node) AddUser(ctx context.Context, user, password string) error {
	return n.call(ctx, "PUT", nil, map[string]string{"password": password, "tags": ""}, "users", user)
}

// DeleteUser ends a user's connections too.
func (n *Node) DeleteUser(ctx context.Context, user string) error {
	return n.call(ctx, "DELETE", nil, nil, "users", user)
}

// Permit sets what a user may do in a vhost, by regular expressions of the names
// of queues and exchanges; an empty one permits nothing.
func (n *Node) Permit(ctx context.Context, user, vhost, configure, write, read string) error {
	return n.call(ctx, "PUT", nil, map[string]string{"configure": configure, "write": write, "read": read},
		"permissions", vhost, user)
}

// Forbid takes a vhost from a user.
func (n *Node) Forbid(ctx context.Context, user, vhost string) error {
	return n.call(ctx, "DELETE", nil, nil, "permissions", vhost, user)
}

// AddVhost adds a vhost in which the administrator may do everything.
func (n *Node) AddVhost(ctx context.Context, vhost string) error {
	if err := n.call(ctx, "PUT", nil, struct{}{}, "vhosts", vhost); err != nil {
		return err
	}
	return n.Permit(ctx, User, vhost, ".*", ".*", ".*")
}

// DeleteVhost deletes it with all that is in it.
func (n *Node) DeleteVhost(ctx context.Context, vhost string) error {
	return n.call(ctx, "DELETE", nil, nil, "vhosts", vhost)
}

// SetPolicy applies a definition, such as {"max-length": 1}, to the queues of a
// vhost whose names match.
func (n *Node) SetPolicy(ctx context.Context, vhost, policy, pattern string, definition map[string]any) error {
	return n.call(ctx, "PUT", nil, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"},
		"policies", vhost, policy)
}

// CloseConnections closes all connections of the administrator, as an operator
// would, and no other's.
func (n *Node) CloseConnections(ctx context.Context) error {
	return n.CloseConnectionsOf(ctx, User)
}

// CloseConnectionsOf closes all connections of one user.
func (n *Node) CloseConnectionsOf(ctx context.Context, user string) error {
	return n.call(ctx, "DELETE", nil, nil, "connections", "username", user)
}

// Connections counts the open ones, as of half a second ago.
func (n *Node) Connections(ctx context.Context) (int, error) {
	var all []struct{}
	err := n.call(ctx, "GET", &all, nil, "connections")
	return len(all), err
}

// Depth of a queue: messages that wait, messages that consumers hold, consumers.
type Depth struct{ Ready, Unacked, Consumers int }

// depth asks the queue itself: the figures of the HTTP API are old, those of
// quorum queues by many seconds.
const depth = `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
case amqqueue:get_type(Q) of
	rabbit_quorum_queue ->
		Ask = fun(F) -> {ok, {_, N}, _} = ra:local_query(amqqueue:get_pid(Q), F), N end,
		[Ask(fun rabbit_fifo:query_messages_ready/1), Ask(fun rabbit_fifo:query_messages_checked_out/1),
		 Ask(fun rabbit_fifo:query_consumer_count/1)];
	_ ->
		[N || {_, N} <- rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged, consumers])]
end.`

// Depth of a queue, exact. It takes a second or two.
func (n *Node) Depth(ctx context.Context, vhost, queue string) (Depth, error) {
	out, err := n.Eval(ctx, fmt.Sprintf(depth, vhost, queue))
	if err != nil {
		return Depth{}, err
	}
	var d Depth
	if _, err := fmt.Sscanf(out, "[%d,%d,%d]", &d.Ready, &d.Unacked, &d.Consumers); err != nil {
		return Depth{}, fmt.Errorf("depth of %s: %w in %q", queue, err, out)
	}
	return d, nil
}

// DeleteQueue deletes a queue whatever is in it and whoever consumes from it.
func (n *Node) DeleteQueue(ctx context.Context, vhost, queue string) error {
	return n.call(ctx, "DELETE", nil, nil, "queues", vhost, queue)
}

// MemoryAlarm raises the alarm at which the server stops reading from all who
// publish, or ends it. It takes a second or two.
func (n *Node) MemoryAlarm(ctx context.Context, on bool) error {
	mark := "0.4"
	if on {
		mark = "0.0000001"
	}
	_, err := n.Ctl(ctx, "set_vm_memory_high_watermark", mark)
	return err
}

// Flush writes down which quorum queues there are. RabbitMQ 3.10 does that by
// itself only some time after a declaration: a queue declared right before a Kill
// comes back empty and never gets a leader. It takes a second or two.
func (n *Node) Flush(ctx context.Context) error {
	_, err := n.Eval(ctx, "[dets:sync(T) || T <- dets:all()].")
	return err
}

// Eval runs an Erlang expression in the server, such as
// "application:set_env(rabbit, consumer_timeout, 5000)." It takes a second or two.
func (n *Node) Eval(ctx context.Context, expression string) (string, error) {
	return n.Ctl(ctx, "eval", expression)
}

// Ctl runs rabbitmqctl and returns what it printed. It takes a second or two.
func (n *Node) Ctl(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, filepath.Join(home, "rabbitmqctl"), append([]string{"--quiet"}, args...)...)
	c.Env = append(os.Environ(), n.env()...)
	out, err := c.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
		}
		return "", fmt.Errorf("rabbitmqctl %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
