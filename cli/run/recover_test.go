package run

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// damaged is a plane's directory with an open run, archived where sealed is set,
// of which damage was done.
type damaged struct {
	*testing.T
	dir string
}

func damage(t *testing.T, sealed bool, do func(log *eventlog.Log)) damaged {
	t.Helper()
	return damaged{t, clitest.FilledPlane(t, func(log *eventlog.Log) {
		if err := log.Streams.EnsureRun(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		state := func(typ events.Type, entity string, data any) events.Event {
			return servicetest.Append(t, log, servicetest.Event(t, "first", typ, entity, "0", data))
		}
		cfg := runfile.DefaultRunConfig()
		cfg.Policy = "small"
		if err := log.Appender.ListRun(t.Context(), state(events.RunOpenedType,
			"first", events.RunOpened{Config: cfg})); err != nil {
			t.Fatal(err)
		}
		state(events.GroupOpenedType, events.GroupID(1), events.GroupOpened{Size: 4})
		for i := range 4 {
			id := events.RolloutID(events.GroupID(1), i)
			state(events.RolloutStartedType, id, events.RolloutStarted{Group: events.GroupID(1), Member: i})
			state(events.TurnSampledType, id, events.TurnSampled{Content: strings.Repeat("a large turn ", 20<<10)})
		}
		if sealed {
			if _, err := log.Appender.Seal(t.Context(), "first", true); err != nil {
				t.Fatal(err)
			}
		}
		do(log)
	})}
}

func (d damaged) run(noun func(*app.Global) *cobra.Command, args ...string) (output string, code int) {
	d.Helper()
	output, err := clitest.Run(d.T, noun, append(args, "--dir", d.dir)...)
	if err != nil && !errors.As(err, new(*app.ExitError)) {
		d.Fatalf("%v: %v", args, err)
	}
	return output, app.ExitCode(err)
}

func (d damaged) recover() (r recovery.Report, code int) {
	d.Helper()
	output, code := d.run(New, "run", "recover", "first", "--json")
	if err := json.Unmarshal([]byte(output), &r); err != nil {
		d.Fatalf("%v: %s", err, output)
	}
	return r, code
}

func (d damaged) state() string {
	d.Helper()
	output, _ := d.run(New, "run", "list", "--json")
	var list []RunSummary
	if err := json.Unmarshal([]byte(output), &list); err != nil || len(list) != 1 {
		d.Fatalf("%v: %s", err, output)
	}
	return list[0].State
}

func (d damaged) audit() (output string, code int) {
	d.Helper()
	return d.run(audit.New, "audit", "first")
}

func deleteStream(t *testing.T) func(log *eventlog.Log) {
	return func(log *eventlog.Log) {
		if err := log.Streams.DeleteRun(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoverALostStream: an open run whose stream is gone is lost, and not
// archived, until it is recovered.
func TestRecoverALostStream(t *testing.T) {
	d := damage(t, true, deleteStream(t))
	if state := d.state(); state != eventlog.StateLost {
		t.Errorf("the run is %s", state)
	}
	var shown RunSummary
	output, _ := d.run(New, "run", "show", "first", "--json")
	if err := json.Unmarshal([]byte(output), &shown); err != nil || shown.State != eventlog.StateLost ||
		len(shown.Outages) != 1 || shown.Outages[0].Kind != health.StreamLost {
		t.Errorf("%v: %s", err, output)
	}
	if output, code := d.audit(); code != app.ExitFindings || !strings.Contains(output, string(recovery.StreamLost)) ||
		strings.Contains(output, "nothing is wrong") {
		t.Errorf("the audit ends with %d: %s", code, output)
	}
	r, code := d.recover()
	if code != 0 || len(r.Found) != 1 || r.Found[0].Kind != recovery.StreamLost || len(r.Done) != 1 || len(r.Left) > 0 {
		t.Errorf("%d: %+v", code, r)
	}
	if state := d.state(); state != "open" {
		t.Errorf("the run is %s", state)
	}
	if output, code := d.audit(); code != 0 || !strings.Contains(output, "nothing is wrong") {
		t.Errorf("the audit ends with %d: %s", code, output)
	}
	if output, code := d.run(New, "run", "recover", "first"); code != 0 || output != "run first: nothing is lost\n" {
		t.Errorf("%d: %s", code, output)
	}
}

// TestContinueOfALostRun: what a run has learnt that is lost, or not all there, is no
// beginning of another one.
func TestContinueOfALostRun(t *testing.T) {
	d := damage(t, true, deleteStream(t))
	_, err := goesOn(t, d.dir)
	if err == nil || !strings.Contains(err.Error(), "the run is lost") ||
		!strings.Contains(err.Error(), "rondo run recover first") {
		t.Errorf("a lost run is continued: %v", err)
	}
}

// TestShowWithoutTheStore: while the store is out, runs are shown as far as the log goes, and it
// is said what is missing.
func TestShowWithoutTheStore(t *testing.T) {
	r := clitest.NewRecorded(t)
	servicetest.OpenRun(t, r.Log, "small", servicetest.Config("fix-a"))
	servicetest.StartRollout(t, r.Log, "first", "g000001-0", "fix-a")
	large := servicetest.Event(t, "first", events.RolloutFailedType, "g000001-0",
		"0", events.RolloutFailed{Message: strings.Repeat("long ", 50<<10)})
	if _, _, err := r.Log.Appender.AppendLast(t.Context(), large,
		func(*events.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	e, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(front.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	for noun, args := range map[string][]string{"show": {"run", "show", "first"}, "list": {"run", "list"}} {
		output, err := clitest.Run(t, New, append(args, "--nats", e.NATS, "--store",
			"s3://bucket/plane?endpoint="+url.QueryEscape(front.URL))...)
		if !errors.As(err, new(*app.ExitError)) || app.ExitCode(err) != app.ExitFindings ||
			!strings.Contains(err.Error(), "the events of first cannot be read to their end while the store is out") {
			t.Errorf("%s ends with %v", noun, err)
		}
		if !strings.Contains(output, "first") || !strings.Contains(output, "open") ||
			noun == "list" && !strings.Contains(output, "small") {
			t.Errorf("%s shows:\n%s", noun, output)
		}
	}
}

// TestRecoverWhatIsGone: a run of which nothing is archived is said to be lost, and so is an
// object that nothing else has.
func TestRecoverWhatIsGone(t *testing.T) {
	d := damage(t, false, deleteStream(t))
	if state := d.state(); state != eventlog.StateLost {
		t.Errorf("the run is %s", state)
	}
	if _, err := clitest.Run(t, New, "run", "show", "first", "--dir", d.dir); err == nil ||
		!strings.Contains(err.Error(), "run first is lost: its stream is gone, and nothing of it is archived") {
		t.Errorf("it is shown: %v", err)
	}
	if r, code := d.recover(); code != app.ExitFindings || len(r.Done) > 0 || len(r.Left) != 1 ||
		r.Left[0].Kind != recovery.StreamLost {
		t.Errorf("%d: %+v", code, r)
	}
	if output, code := d.run(audit.New, "audit"); code != app.ExitFindings ||
		!strings.Contains(output, string(recovery.StreamLost)) {
		t.Errorf("the audit of all runs ends with %d: %s", code, output)
	}
	if _, err := clitest.Run(t, New, "run", "recover", "nobody", "--dir", d.dir); err == nil ||
		!strings.Contains(err.Error(), "nobody") {
		t.Errorf("a run that never was is recovered: %v", err)
	}

	d = damage(t, true, func(log *eventlog.Log) {
		for info, err := range log.Store().List(t.Context(), "blobs/") {
			if err == nil && info.Size > 100<<10 {
				err = log.Store().Delete(t.Context(), info.Key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	r, code := d.recover()
	if code != app.ExitFindings || len(r.Done) > 0 || len(r.Left) != 4 || r.Left[0].Kind != recovery.ObjectLost ||
		!strings.Contains(r.Left[0].Found, "sequence 4") {
		t.Errorf("%d: %+v", code, r)
	}
}

// TestRecoverASegment: a segment that the store has lost, or that was changed, is
// made again from the stream.
func TestRecoverASegment(t *testing.T) {
	for name, put := range map[string]func(log *eventlog.Log, key string) error{
		"lost": func(log *eventlog.Log, key string) error { return log.Store().Delete(t.Context(), key) },
		"changed": func(log *eventlog.Log, key string) error {
			return log.Store().Put(t.Context(), key, []byte("something else"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var segment storage.Ref
			d := damage(t, true, func(log *eventlog.Log) {
				sealed, err := log.Segments(t.Context(), "first")
				if err != nil {
					t.Fatal(err)
				}
				segment = sealed[0].Segment
				if err := put(log, segment.Key); err != nil {
					t.Fatal(err)
				}
			})
			if output, code := d.audit(); code != app.ExitFindings ||
				!strings.Contains(output, string(recovery.SegmentLost)) {
				t.Errorf("the audit ends with %d: %s", code, output)
			}
			if r, code := d.recover(); code != 0 || len(r.Done) != 1 || len(r.Left) > 0 {
				t.Errorf("%d: %+v", code, r)
			}
			p, err := plane.Hold(t.Context(), d.dir, plane.HoldOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if _, err := storage.GetBlob(t.Context(), p.Store, segment); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRecoverALostDisk: the log's disk is lost, and the store is not.
func TestRecoverALostDisk(t *testing.T) {
	d := damage(t, true, func(*eventlog.Log) {})
	elsewhere := damaged{t, t.TempDir()}
	output, err := clitest.Run(t, New, "run", "recover", "first", "--json", "--dir", elsewhere.dir,
		"--store", filepath.Join(d.dir, "objects"))
	var r recovery.Report
	if err != nil || json.Unmarshal([]byte(output), &r) != nil || len(r.Done) != 1 || len(r.Left) > 0 {
		t.Fatalf("%v: %s", err, output)
	}
}
