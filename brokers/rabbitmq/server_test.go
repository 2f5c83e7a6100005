package rabbitmq

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/test/node"
	broker "github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

const (
	// patience bounds what must happen; it is long because the machine may be busy
	// and the server takes its time to boot.
	patience    = 45 * time.Second
	appUser     = "app"
	appPassword = "s3cret-canary"
)

// server is a RabbitMQ node, the user that the driver signs in as, and a process
// inside it that answers at once what the HTTP API tells late.
type server struct {
	*broker.Node

	tb   testing.TB
	port int // where that process listens
}

func startServer(tb testing.TB, config ...string) *server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := broker.Start(ctx, broker.Options{Dir: tb.TempDir(), Config: config})
	must(tb, err)
	tb.Cleanup(n.Kill)
	s := &server{Node: n, tb: tb}
	s.port, err = node.FreePort()
	must(tb, err)
	must(tb, n.AddUser(ctx, appUser, appPassword))
	must(tb, n.Permit(ctx, appUser, "/", ".*", ".*", ".*"))
	must(tb, s.listen(ctx))
	tb.Logf("RabbitMQ %s", n.Version())
	return s
}

// answering is an Erlang process that answers one line per connection:
//
//	count QUEUE: messages, ready or not, behind all that was sent to the queue
//	flush QUEUE: "ok" when the operating system has all that the queue knows
const answering = `
spawn(fun() ->
  {ok, L} = gen_tcp:listen(%d, [binary, {ip, {127,0,0,1}}, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 100}]),
  Serve = fun(Line) ->
    [What, Name] = binary:split(binary:part(Line, 0, byte_size(Line) - 1), <<" ">>),
    {ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, Name)),
    Pid = amqqueue:get_pid(Q),
    case {amqqueue:get_type(Q), What} of
      {rabbit_quorum_queue, <<"count">>} ->
        {ok, _, _} = ra:process_command(Pid, rabbit_fifo:make_purge_nodes([])),
        {ok, {_, N}, _} = ra:local_query(Pid, fun rabbit_fifo:query_messages_total/1), N;
      {rabbit_quorum_queue, <<"flush">>} ->
        {ok, _, _} = ra:process_command(Pid, rabbit_fifo:make_purge_nodes([])), ok;
      {_, <<"count">>} ->
        ok = gen_server2:call(Pid, {notify_down, self()}, infinity),
        [{messages, N}] = rabbit_amqqueue:info(Q, [messages]), N;
      {_, <<"flush">>} ->
        ok = gen_server2:call(Pid, {notify_down, self()}, infinity),
        rabbit_amqqueue:run_backing_queue(Pid, rabbit_variable_queue, fun(M, S) -> M:handle_pre_hibernate(S) end),
        ok = gen_server2:call(Pid, {notify_down, self()}, infinity)
    end
  end,
  Accept = fun(Next) ->
    {ok, S} = gen_tcp:accept(L),
    spawn(fun() ->
      Answer = try {ok, Line} = gen_tcp:recv(S, 0), Serve(Line) catch _:E -> E end,
      gen_tcp:send(S, io_lib:format("~0p~n", [Answer])),
      gen_tcp:close(S)
    end),
    Next(Next)
  end,
  Accept(Accept)
end), ok.`

func (s *server) listen(ctx context.Context) error {
	_, err := s.Eval(ctx, fmt.Sprintf(answering, s.port))
	return err
}

// ask has the process inside the server answer.
func (s *server) ask(ctx context.Context, what, queue string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if t, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(t)
	}
	if _, err := fmt.Fprintf(c, "%s %s\n", what, queue); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// count tells how many messages of a queue are not acked, whoever has them.
func (s *server) count(ctx context.Context, queue string) (int64, error) {
	text, err := s.ask(ctx, "count", queue)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count %s: %s", queue, text)
	}
	return n, nil
}

// flush returns when a kill loses nothing of what the queue has taken.
func (s *server) flush(ctx context.Context, queue string) error {
	text, err := s.ask(ctx, "flush", queue)
	if err == nil && text != "ok" {
		err = fmt.Errorf("flush %s: %s", queue, text)
	}
	return err
}

func (s *server) restart(ctx context.Context) error {
	if err := s.Restart(ctx); err != nil {
		return err
	}
	return s.listen(ctx)
}

// freeze returns when all of the server stands still.
func (s *server) freeze() {
	s.tb.Helper()
	s.Freeze()
	stat := fmt.Sprintf("/proc/%d/stat", s.PIDs()[0])
	poll(s.tb, patience, "the server stops", func() bool {
		text, err := os.ReadFile(stat)
		_, after, _ := strings.Cut(string(text), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
}

// poll tries until f is true.
func poll(tb testing.TB, limit time.Duration, what string, f func() bool) {
	tb.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// alarm raises the memory alarm, or ends it.
func (s *server) alarm(ctx context.Context, on bool) error {
	verb := "clear_alarm({resource_limit, memory, node()})."
	if on {
		verb = "set_alarm({{resource_limit, memory, node()}, []})."
	}
	_, err := s.Eval(ctx, "rabbit_alarm:"+verb)
	return err
}

// client runs f with a channel of its own, beside the proxy.
func (s *server) client(f func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(s.DialURL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
