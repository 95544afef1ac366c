package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/cli/app"
)

// natsServer starts a server with some options.
func natsServer(t *testing.T, change func(*server.Options)) string {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true}
	change(o)
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// wantFinding wants one finding of a check at a level, with words in what was
// found and in what helps.
func wantFinding(t *testing.T, found []finding, check, level, words, do string) {
	t.Helper()
	for _, f := range found {
		if f.Check == check && f.Level == level && strings.Contains(f.Found, words) && strings.Contains(f.Do, do) {
			return
		}
	}
	t.Errorf("no %s of %s with %q and the advice %q in %+v", level, check, words, do, found)
}

func TestDoctorOnNATS(t *testing.T) {
	t.Parallel()
	large := func(o *server.Options) { o.JetStreamMaxStore = 1 << 40 }
	now := time.Now
	healthy := natsServer(t, large)
	for range 2 { // it leaves nothing in the way of the next one
		found := tryNATS(t.Context(), healthy, app.NATSAccess{}, now)
		wantFinding(t, found, "jetstream", levelOK, "append took", "")
		wantFinding(t, found, "clock", levelOK, "within", "")
	}
	for name, c := range map[string]struct {
		change                    func(*server.Options)
		clock                     func() time.Time
		check, level, words, help string
	}{
		"without JetStream": {func(o *server.Options) { o.JetStream = false }, now, "jetstream", levelTrouble,
			"make a stream of 2.0 GiB", "-js"},
		"without room": {func(o *server.Options) { o.JetStreamMaxStore = 1 << 30 }, now, "jetstream", levelTrouble,
			"insufficient", "max_file_store"},
		"small messages": {func(o *server.Options) { large(o); o.MaxPayload = 1 << 16 }, now, "nats", levelTrouble,
			"65536 bytes", "max_payload"},
		"with a password": {func(o *server.Options) { large(o); o.Username, o.Password = "rondo", "secret" }, now,
			"nats", levelTrouble, "Authorization", "password"},
		"other clock": {large, func() time.Time { return time.Now().Add(-time.Hour) }, "clock", levelTrouble,
			"off the server's", "NTP"},
		"clock a bit off": {large, func() time.Time { return time.Now().Add(10 * time.Second) }, "clock",
			levelWarning, "off", "NTP"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, tryNATS(t.Context(), natsServer(t, c.change), app.NATSAccess{}, c.clock), c.check,
				c.level, c.words, c.help)
		})
	}
	found := tryNATS(t.Context(), "nats://rondo:hunter2@127.0.0.1:1", app.NATSAccess{}, now)
	wantFinding(t, found, "nats", levelTrouble, "no servers", "nats-server runs")
	if strings.Contains(found[0].Found, "hunter2") {
		t.Errorf("the password is shown: %+v", found)
	}
}

// A user who may make no stream, as a service, is told what it can use, and at once.
func TestDoctorWithFewRights(t *testing.T) {
	t.Parallel()
	address := natsServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "service", Password: "secret", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.*"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
	})
	address = strings.Replace(address, "nats://", "nats://service:secret@", 1)
	began := time.Now()
	found := tryNATS(t.Context(), address, app.NATSAccess{}, time.Now)
	wantFinding(t, found, "jetstream", levelOK, "only the intake or the operator", "")
	wantFinding(t, tryRuns(t.Context(), address, app.NATSAccess{}, t.TempDir()),
		"runs", levelOK, "may not read all", "")
	if took := time.Since(began); took > checkTimeout {
		t.Errorf("it took %s", took)
	}
}

func TestDoctorOnStreams(t *testing.T) {
	t.Parallel()
	wantFinding(t, tryStreams(t.Context(), ""), "streams", levelWarning, "not checked", "--nats-monitor")
	answers := func(body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "/healthz?details=true" {
				t.Errorf("asked for %s", r.URL)
			}
			w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL + "/"
	}
	wantFinding(t, tryStreams(t.Context(), answers(`{"status":"ok"}`)), "streams", levelOK, "no stream refuses", "")
	wantFinding(t, tryStreams(t.Context(),
		answers(`{"status":"error","errors":[{"type":"STREAM","account":"A","stream":"RONDO_r","error":"JetStream stream 'A > RONDO_r' write error: write 1.blk: no space left on device"}]}`)),
		"streams", levelTrouble, "log_refuses_writes RONDO_r: write 1.blk: no space left", "restart the server")
	full := `{"status":"error","errors":[{"type":"STREAM","stream":"RONDO_r","error":"write error: disk full"}]}`
	cluster := "http://127.0.0.1:1," + answers(`{"status":"ok"}`)
	wantFinding(t, tryStreams(t.Context(), cluster), "streams", levelOK, "no stream refuses", "")
	wantFinding(t, tryStreams(t.Context(), cluster+","+answers(full)+","+answers(full)), "streams", levelTrouble,
		"log_refuses_writes RONDO_r: disk full", "restart the server")
	wantFinding(t, tryStreams(t.Context(), answers(`<html>`)), "streams", levelTrouble,
		"read the NATS server's health", "--nats-monitor")
	wantFinding(t, tryStreams(t.Context(), "http://127.0.0.1:1"), "streams", levelTrouble, "refused", "--nats-monitor")
}

func TestDoctorOnDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	quick := func(context.Context, string) (time.Duration, error) { return time.Millisecond, nil }
	room := func(n uint64) disk { return disk{func(string) (uint64, error) { return n, nil }, quick} }
	wantFinding(t, tryDirectory(t.Context(), filepath.Join(dir, "a", "b"), room(1<<40)),
		"directory", levelOK, "1024.0 GiB free", "")
	wantFinding(t, tryDirectory(t.Context(), dir, room(5<<30)), "directory", levelWarning, "5.0 GiB free", "make room")
	wantFinding(t, tryDirectory(t.Context(), dir, room(1<<20)), "directory", levelTrouble, "1.0 MiB free", "make room")
	wantFinding(t, tryDirectory(t.Context(), dir, disk{func(string) (uint64, error) {
		return 0,
			errors.New("no such disk")
	}, quick}), "directory", levelTrouble, "no such disk", "--dir")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, tryDirectory(t.Context(), file, room(1<<40)), "directory", levelTrouble,
		"is not a directory", "--dir")
	writes := func(took time.Duration, err error) disk {
		return disk{func(string) (uint64, error) { return 1 << 40, nil },
			func(context.Context, string) (time.Duration, error) { return took, err }}
	}
	slow := tryDirectory(t.Context(), dir, writes(3*time.Second, nil))
	wantFinding(t, slow, "directory", levelWarning, "disk_slow "+dir+": a small write took 3s, and it need not be full",
		"a faster one")
	wantFinding(t, slow, "directory", levelOK, "is writable", "")
	wantFinding(t, tryDirectory(t.Context(), dir, writes(0, fmt.Errorf("write: %w", unix.ENOSPC))),
		"directory", levelTrouble, "disk_full", "make room")
	wantFinding(t, tryDirectory(t.Context(), dir, writes(0, fmt.Errorf("write: %w", unix.EIO))),
		"directory", levelTrouble, "disk_fails", "see to the disk")
	hangs := writes(0, nil)
	hangs.write = func(ctx context.Context, _ string) (time.Duration, error) {
		<-ctx.Done()
		return time.Minute, ctx.Err()
	}
	hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	wantFinding(t, tryDirectory(hurried, dir, hangs), "directory", levelTrouble,
		"has not ended for 1m0s, and it need not be full", "a faster one")
	wantFinding(t, []finding{aboutMachine("")}, "machine", levelOK, "processors", "")
	wantFinding(t, []finding{aboutMachine("no turn")}, "machine", levelWarning,
		"machine_starved: no turn. What the other checks found slow or silent may be well", "more processors")
	lately := []string{"", "the first", "another", ""}
	checked := func(context.Context) []finding { lately = lately[1:]; return nil }
	found, err := runChecks(t.Context(), []func(context.Context) []finding{checked, checked, checked}, time.Minute,
		func() string { return lately[0] })
	if err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
	wantFinding(t, found, "machine", levelWarning, "machine_starved: the first.", "more processors")
	if advice := storeAdvice(hurried, dir, context.DeadlineExceeded); !strings.Contains(advice, "need not be full") {
		t.Errorf("a store on a disk that hangs: %s", advice)
	}
	if os.Getuid() != 0 { // who may write everywhere
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		wantFinding(t, tryDirectory(t.Context(), closed, room(1<<40)), "directory", levelTrouble,
			"is not writable", "owner")
	}
}

func TestDoctorOnStores(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "rondo-test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "rondo-test-secret")
	good := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(good.Close)
	target, err := url.Parse(good.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("If-Match")
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(careless.Close)
	refuses := func(code string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.Header().Set("x-minio-error-code", code) // of an answer to HEAD, which has no body
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte("<Error><Code>" + code + "</Code><Message>no</Message></Error>"))
		}))
		t.Cleanup(s.Close)
		return "s3://rondo?endpoint=" + s.URL
	}
	dir := t.TempDir()
	for name, c := range map[string]struct{ location, level, words, help string }{
		"directory":     {dir, levelOK, "can be written, swapped and read", ""},
		"new directory": {filepath.Join(dir, "new"), levelOK, "will be made", ""},
		"bucket": {"s3://rondo?create=true&endpoint=" + good.URL, levelOK,
			"can be written, swapped and read", ""},
		"no bucket":     {"s3://other?endpoint=" + good.URL, levelTrouble, "does not exist", "create=true"},
		"no conditions": {"s3://careless?create=true&endpoint=" + careless.URL, levelTrouble, "", "versitygw 1.8.0"},
		"wrong key":     {refuses("InvalidAccessKeyId"), levelTrouble, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"},
		"clock":         {refuses("RequestTimeTooSkewed"), levelTrouble, "RequestTimeTooSkewed", "NTP"},
		"nobody is there": {"s3://rondo?endpoint=http://127.0.0.1:1", levelTrouble, "refused",
			"see that the server runs"},
		"nothing is named": {"", levelTrouble, "no store", "--store"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
			defer cancel()
			wantFinding(t, tryObjects(ctx, c.location), "store", c.level, c.words, c.help)
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, "rondo-probe", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
