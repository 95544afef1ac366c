package health_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// TestMain is also the program of a NATS server that a test can stop and kill. It lets more tests
// run at once than there are processors, unless it was told how many: they wait most of the time.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RONDO_TEST_NATS_DIR"); dir != "" {
		s, err := embedded.Start(embedded.Options{Dir: dir, Listen: os.Getenv("RONDO_TEST_NATS_LISTEN")})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.URL())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		os.Exit(0)
	}
	flag.Parse()
	if at := flag.Lookup("test.parallel"); at.Value.String() == at.DefValue {
		_ = at.Value.Set("6")
	}
	os.Exit(m.Run())
}

// child is a NATS server in a process of its own.
type child struct {
	url string
	cmd *exec.Cmd
}

func startServer(t *testing.T, dir, listen string) child {
	t.Helper()
	c := child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), "RONDO_TEST_NATS_DIR="+dir, "RONDO_TEST_NATS_LISTEN="+listen)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); c.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.url = strings.TrimSpace(line)
	return c
}

func (c child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c child) signal(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// watched is a log with a monitor that looks at it.
type watched struct {
	t       *testing.T
	log     *eventlog.Log
	monitor *health.Monitor
	metrics *prometheus.Registry

	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// lines counts lines of the monitor's log with an event and a kind.
func (w *watched) lines(event string, kind health.Kind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for line := range strings.Lines(w.text.String()) {
		if strings.Contains(line, "msg=\""+event+"\"") && strings.Contains(line, "kind="+string(kind)+" ") {
			n++
		}
	}
	return n
}

func watch(t *testing.T, o health.Options, nc *nats.Conn, store storage.Store) *watched {
	t.Helper()
	w := &watched{t: t, metrics: prometheus.NewRegistry()}
	var err error
	if w.log, err = eventlog.New(nc, store); err != nil {
		t.Fatal(err)
	}
	if err := w.log.Streams.EnsureRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	o.Log, o.Conn, o.Logger, o.Metrics = w.log.Streams, nc, slog.New(slog.NewTextHandler(w, nil)), w.metrics
	if w.monitor, err = health.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.monitor.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	if outages := w.ready(); len(outages) > 0 {
		t.Fatalf("outages at the beginning: %v", outages)
	}
	return w
}

// ready asks the monitor now.
func (w *watched) ready() []health.Outage { return notOfSpeed(w.monitor.Ready(w.t.Context())) }

// outages are those that the monitor knows.
func (w *watched) outages() []health.Outage { return notOfSpeed(w.monitor.Outages()) }

// notOfSpeed leaves out what a busy machine that runs the test may bring forth at any time.
func notOfSpeed(list []health.Outage) []health.Outage {
	return slices.DeleteFunc(list, func(o health.Outage) bool {
		return o.Kind == health.MachineStarved || o.Kind == health.DiskSlow || o.Kind == health.AppendsSlow
	})
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// eventually waits until a kind of outage is known, or is not.
func (w *watched) eventually(kind health.Kind, there bool) {
	w.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := false
		for _, o := range w.monitor.Outages() {
			found = found || o.Kind == kind
		}
		if found == there {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s known: %v, want %v; log:\n%s", kind, found, there, w.text.String())
		}
	}
}

// once wants each outage of a kind logged at its beginning and at its end, and counted.
func (w *watched) once(kind health.Kind, times int) {
	w.t.Helper()
	if began, ended := w.lines("outage began", kind), w.lines("outage ended", kind); began != times || ended != times {
		w.t.Errorf("%d outages %s: %d lines at their beginning and %d at their end:\n%s", times, kind,
			began, ended, w.text.String())
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(w.metrics, promhttp.HandlerOpts{}).ServeHTTP(page,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{fmt.Sprintf("rondo_outages_total{kind=%q} %d\n", kind, times),
		fmt.Sprintf("rondo_outages{kind=%q} 0\n", kind), "rondo_outage_seconds_total{kind=" + fmt.Sprintf("%q", kind)} {
		if !strings.Contains(page.Body.String(), want) {
			w.t.Errorf("metrics lack %q:\n%s", want, page.Body)
		}
	}
}

// append appends a fact to a chain of its own, beside the test.
func (w *watched) append(n int) <-chan error {
	w.t.Helper()
	e, err := events.New("r", events.FeedbackRecordedType, fmt.Sprintf("g%06d-0", n),
		"0", events.FeedbackRecorded{Signal: "accept", Text: strings.Repeat("x", 2000)})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := w.log.Appender.Append(w.t.Context(), e)
		done <- err
	}()
	return done
}

// appendUntilStuck appends until one gets no answer, which is given, as the log refuses writes.
func (w *watched) appendUntilStuck() (stuck <-chan error) {
	w.t.Helper()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	done := w.append(1)
	for n := 2; n < 10_000; {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
			done = w.append(n)
			n++
		case <-look.C:
			for _, o := range w.monitor.Outages() {
				if o.Kind == health.LogRefusesWrites {
					return done
				}
			}
		}
	}
	w.t.Fatal("the disk does not get full")
	return nil
}

func within(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("the append is never answered")
	}
}

// An embedded log whose disk was full is opened again when there is room, and what waited goes on.
func TestFullDiskHeals(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, "8m")
	s, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	w := watch(t, health.Options{Server: s, Disks: []string{dir, dir + "/not-there"}},
		natstest.Connect(t, s), natstest.Store(t))
	free := smalldisk.Fill(t, dir)
	stuck := w.appendUntilStuck()
	w.eventually(health.LogRefusesWrites, true)
	w.eventually(health.DiskFull, true)
	if outages := w.ready(); len(outages) < 2 {
		t.Errorf("ready with %v", outages)
	}
	free()
	within(t, stuck)
	w.eventually(health.LogRefusesWrites, false)
	w.eventually(health.DiskFull, false)
	w.once(health.LogRefusesWrites, 1)
	w.once(health.DiskFull, 1)
	if !strings.Contains(w.text.String(), `msg="log restarted"`) {
		t.Errorf("nothing is said about the restart:\n%s", w.text.String())
	}
}

// A server elsewhere whose stream refuses writes is known by its monitoring port, and where that is
// not known, by appends that wait while the server answers everything else.
func TestFullDiskElsewhere(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]bool{"monitoring port": true, "waiting appends": false} {
		t.Run(name, func(t *testing.T) {
			dir := smalldisk.Mount(t, "8m")
			o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, HTTPHost: "127.0.0.1",
				HTTPPort: server.RANDOM_PORT, JetStream: true,
				JetStreamMaxStore: 1 << 50, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true}
			start := func() *server.Server {
				s, err := server.NewServer(o.Clone())
				if err != nil {
					t.Fatal(err)
				}
				s.Start()
				if !s.ReadyForConnections(time.Minute) {
					t.Fatal("the server does not start")
				}
				t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
				return s
			}
			s := start()
			options := health.Options{}
			if ask {
				options.NATSMonitor = "http://" + s.MonitorAddr().String()
			}
			w := watch(t, options, connect(t, s.ClientURL()), natstest.Store(t))
			free := smalldisk.Fill(t, dir)
			stuck := w.appendUntilStuck()
			w.eventually(health.LogRefusesWrites, true)
			for _, o := range w.outages() {
				if o.Of != "RONDO_r" || !strings.Contains(o.Do, "restart the server") {
					t.Errorf("outage %+v", o)
				}
			}
			free()
			o.Port, o.HTTPPort = addressPort(t, s.ClientURL()), s.MonitorAddr().Port
			s.Shutdown()
			s.WaitForShutdown()
			start()
			within(t, stuck)
			w.eventually(health.LogRefusesWrites, false)
			w.eventually(health.LogUnreachable, false)
			w.once(health.LogRefusesWrites, 1)
		})
	}
}

func addressPort(t *testing.T, url string) (port int) {
	t.Helper()
	if _, err := fmt.Sscanf(url[strings.LastIndex(url, ":"):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// A server that is stopped by a signal answers nothing, and no connection breaks; one
// that is killed breaks them.
func TestServerStopsAndDies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startServer(t, dir, "127.0.0.1:0")
	w := watch(t, health.Options{}, connect(t, c.url), natstest.Store(t))
	within(t, w.append(1))
	c.signal(t, unix.SIGSTOP)
	w.eventually(health.LogUnreachable, true)
	began := time.Now()
	if outages := w.ready(); len(outages) != 1 {
		t.Errorf("ready beside a server that does not answer: %v", outages)
	}
	// the server never answers, and a busy machine is slow
	if took := time.Since(began); took > time.Minute+health.Patience {
		t.Errorf("the answer took %s", took)
	}
	waits := w.append(2)
	c.signal(t, unix.SIGCONT)
	within(t, waits)
	w.eventually(health.LogUnreachable, false)
	w.once(health.LogUnreachable, 1)

	c.kill()
	w.eventually(health.LogUnreachable, true)
	startServer(t, dir, strings.TrimPrefix(c.url, "nats://"))
	w.eventually(health.LogUnreachable, false)
	within(t, w.append(3))
	w.once(health.LogUnreachable, 2)
}

// brokenStore fails, or hangs.
type brokenStore struct {
	storage.Store
	stat func(context.Context) error
}

func (s *brokenStore) Stat(ctx context.Context, _ string) (storage.Info, error) {
	return storage.Info{}, s.stat(ctx)
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(mended <-chan struct{}) error{
		"fails": func(<-chan struct{}) error { return fmt.Errorf("connection refused") },
		// it ignores its context, as a dead NFS server does
		"hangs": func(mended <-chan struct{}) error { <-mended; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mended := make(chan struct{})
			var mu sync.Mutex
			stat := func(context.Context) error { return storage.ErrNotFound }
			store := &brokenStore{Store: natstest.Store(t), stat: func(ctx context.Context) error {
				mu.Lock()
				current := stat
				mu.Unlock()
				return current(ctx)
			}}
			become := func(f func(context.Context) error) {
				mu.Lock()
				defer mu.Unlock()
				stat = f
			}
			w := watch(t, health.Options{}, natstest.Connect(t, natstest.Server(t)), store)
			become(func(context.Context) error { return broken(mended) })
			w.eventually(health.StoreUnreachable, true)
			become(func(context.Context) error { return storage.ErrNotFound })
			close(mended)
			w.eventually(health.StoreUnreachable, false)
			w.once(health.StoreUnreachable, 1)
		})
	}
}

// A consumer that fails again and again is an outage; one that failed once, and then
// has nothing to do, is not.
func TestStalledInputs(t *testing.T) {
	t.Parallel()
	w := watch(t, health.Options{}, natstest.Connect(t, natstest.Server(t)), natstest.Store(t))
	w.monitor.Stalled("RONDO/once", fmt.Errorf("the pull was lost"))
	fails := time.NewTicker(time.Second)
	defer fails.Stop()
	for known := false; !known; {
		w.monitor.Stalled("RONDO/always", fmt.Errorf("permission denied"))
		<-fails.C
		known = len(w.outages()) > 0
	}
	outages := w.outages()
	if outages[0].Kind != health.InputsStalled || !strings.Contains(outages[0].Reason, "1 consumers") ||
		!strings.Contains(outages[0].Reason, "RONDO/always: permission denied") {
		t.Errorf("outages %+v", outages)
	}
	w.monitor.Stalled("RONDO/always", nil)
	w.eventually(health.InputsStalled, false)
	w.once(health.InputsStalled, 1)
}
