// Package golden holds a recorded run to what is promised of every run from 0.1.0 on: it can be
// restored, audited, verified and replayed by each later version.
//
// A recording is made by a demo of its version, and after a release never again: go test
// ./tests/golden -rewrite NAME.
package golden

import (
	"archive/zip"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

var rewrite = flag.String("rewrite", "", "record testdata/NAME.zip by a demo, instead of testing")

// recording is a recorded run that was restored from its archive alone.
type recording struct {
	*testing.T
	log    *eventlog.Log
	run    string
	sealed []events.SegmentSealed
}

func restored(t *testing.T, name string) *recording {
	t.Helper()
	r := &recording{T: t, log: natstest.Log(t)}
	z, err := zip.OpenReader(filepath.Join("testdata", name+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.log.Store().Put(t.Context(), f.Name, data); err != nil {
			t.Fatal(err)
		}
		if parts := strings.Split(f.Name, "/"); parts[0] == "runs" {
			r.run = parts[1]
		}
	}
	if r.sealed, err = recovery.Stored(t.Context(), r.log.Store(), r.run); err != nil || len(r.sealed) == 0 {
		t.Fatalf("run %q: %d segments, %v", r.run, len(r.sealed), err)
	}
	if _, err := recovery.Restore(t.Context(), r.log, r.run, r.sealed, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// whole checks that the archive is what was recorded.
func (r *recording) whole() {
	r.Helper()
	findings, err := r.log.Archive.Verify(r.Context(), r.run, r.sealed)
	if err != nil || len(findings) > 0 {
		r.Errorf("the archive: %v %v", findings, err)
	}
	objects, err := recovery.VerifyObjects(r.Context(), r.log.Store(), r.run, r.sealed, nil)
	if err != nil || len(objects.Findings) > 0 || objects.Count == 0 {
		r.Errorf("%d objects: %v %v", objects.Count, objects.Findings, err)
	}
}

func (r *recording) audit(run string) audit.Report {
	r.Helper()
	report, err := audit.Check(r.Context(), r.log.Reader, run)
	if err != nil {
		r.Fatal(err)
	}
	return report
}

// verify makes decisions of services again.
func (r *recording) verify(services ...string) (checked map[string]int, differences []pipeline.Difference) {
	r.Helper()
	v := &pipeline.Verification{Log: r.log.Reader, Run: r.run, Deciders: r.deciders(r.run, services...),
		Report: func(d pipeline.Difference) { differences = append(differences, d) }}
	checked, err := v.Verify(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return checked, differences
}

func (r *recording) config() runfile.RunConfig {
	r.Helper()
	cfg, err := r.log.RecordedConfig(r.Context(), r.run)
	if err != nil {
		r.Fatal(err)
	}
	return cfg
}

func (r *recording) deciders(run string, services ...string) map[string]map[string]pipeline.Decider {
	r.Helper()
	cfg, all := r.config(), map[string]map[string]pipeline.Decider{}
	for _, name := range services {
		var err error
		switch name {
		case topology.QuerySampler:
			all[name], err = querysampler.Deciders(run, cfg)
		case topology.AdvantageCalculator:
			all[name], err = advantagecalculator.Deciders(run, cfg)
		case topology.TrainerFeeder:
			all[name] = trainerfeeder.Deciders(run, cfg, r.log.Store())
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	return all
}

// replay makes a new run of the recorded one, under the same configuration, and compares the two.
func (r *recording) replay() books.Diff {
	r.Helper()
	again := pipeline.Rerun{
		Log: r.log, From: r.run, To: "again", Config: r.config(),
		Deciders: r.deciders("again", topology.AdvantageCalculator, topology.TrainerFeeder),
	}
	if _, err := again.Run(r.Context()); err != nil {
		r.Fatal(err)
	}
	d, err := books.Compare(r.Context(), r.log.Reader, r.run, "again", "trainer")
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// TestRecorded: what was recorded is still all that is promised of a run.
func TestRecorded(t *testing.T) {
	r := restored(t, "v1")
	r.whole()
	if report := r.audit(r.run); len(report.Findings) > 0 || len(report.Feeds) == 0 || report.Feeds[0].Trained == 0 {
		t.Errorf("the audit: %+v", report)
	}
	checked, differences := r.verify(topology.QuerySampler, topology.AdvantageCalculator, topology.TrainerFeeder)
	if len(differences) > 0 || checked[topology.QuerySampler] == 0 || checked[topology.AdvantageCalculator] == 0 ||
		checked[topology.TrainerFeeder+"/trainer"] == 0 {
		t.Errorf("checked %v: %+v", checked, differences)
	}
	if d := r.replay(); d.Both == 0 || d.Changed > 0 || d.OnlyA+d.OnlyB > 0 {
		t.Errorf("the replay differs: %+v", d)
	}
	if report := r.audit("again"); len(report.Findings) > 0 {
		t.Errorf("the audit of the replay: %+v", report.Findings)
	}
}
