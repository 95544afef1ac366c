package weightpublisher

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
)

// safetensors is a file of one vector.
func safetensors(values ...float32) []byte {
	header := fmt.Sprintf(`{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, len(values), 4*len(values))
	return withHeader(header, values...)
}

func withHeader(header string, values ...float32) []byte {
	var b bytes.Buffer
	for len(header)%8 != 0 {
		header += " "
	}
	binary.Write(&b, binary.LittleEndian, uint64(len(header)))
	b.WriteString(header)
	binary.Write(&b, binary.LittleEndian, values)
	return b.Bytes()
}

// submit states a submission as the intake does.
func submit(t *testing.T, log *eventlog.Log, policy, id string, version int64,
	files ...events.WeightsFile) events.Event {
	t.Helper()
	return servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsSubmittedType, policy, id,
		events.WeightsSubmitted{Version: version, Run: "r", ThroughStep: version, Files: files}))
}

func file(t *testing.T, log *eventlog.Log, name string, data []byte) events.WeightsFile {
	t.Helper()
	return events.WeightsFile{Name: name, Blob: servicetest.Blob(t, log.Store(), data)}
}

func model(t *testing.T, log *eventlog.Log, values ...float32) events.WeightsFile {
	t.Helper()
	return file(t, log, "model.safetensors", safetensors(values...))
}

func start(t *testing.T, log *eventlog.Log) {
	t.Helper()
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env) })
}

func message(e events.Event) pipeline.Message {
	return pipeline.Message{Event: e, Seq: e.Seq, Time: e.Time, Delivered: 2}
}

func TestRejections(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	good := model(t, log, 1, 2)
	missing := good
	missing.Blob.Key = "blobs/sha256/00/none"
	corrupt := good
	corrupt.Blob.SHA256 = strings.Repeat("0", 64)
	outside := good
	outside.Blob.Key = "../../etc/passwd"
	huge := withHeader(`{}`)
	binary.LittleEndian.PutUint64(huge, 1<<62)
	for policy, c := range map[string]struct {
		files []events.WeightsFile
		want  string
	}{
		"header-longer-than-file": {[]events.WeightsFile{file(t, log, "model.safetensors", huge)},
			"a file of tensors is not"},
		"header-is-no-json": {[]events.WeightsFile{file(t, log, "model.safetensors", withHeader(`nonsense`))},
			"a file of tensors is not"},
		"shape-lies": {[]events.WeightsFile{file(t, log,
			"model.safetensors", withHeader(`{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}`, 1, 2))},
			"a file of tensors is not"},
		"offsets-lie": {[]events.WeightsFile{file(t, log,
			"model.safetensors", withHeader(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 1))},
			"a file of tensors is not"},
		"data-not-named": {[]events.WeightsFile{file(t, log,
			"model.safetensors", withHeader(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2))},
			"a file of tensors is not"},
		"overlap": {[]events.WeightsFile{file(t, log,
			"model.safetensors",
			withHeader(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`,
				1, 2))}, "a file of tensors is not"},
		"truncated": {[]events.WeightsFile{file(t, log, "model.safetensors", safetensors(1, 2)[:20])},
			"a file of tensors is not"},
		"empty": {[]events.WeightsFile{file(t, log, "model.safetensors", nil)},
			"a file of tensors is not"},
		"missing-blob":        {[]events.WeightsFile{missing}, "file model.safetensors: "},
		"corrupt-blob":        {[]events.WeightsFile{corrupt}, "sha256"},
		"key-outside":         {[]events.WeightsFile{outside}, "../../etc/passwd"},
		"same-name-twice":     {[]events.WeightsFile{good, good}, "once"},
		"no-tensors":          {[]events.WeightsFile{file(t, log, "config.json", []byte("{}"))}, ".safetensors"},
		"-begins-with-a-dash": {[]events.WeightsFile{good}, "policy name"},
	} {
		submitted := submit(t, log, policy, "1", 1, c.files...)
		rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue,
			events.WeightsRejectedType, policy)
		if rejected.Version != 1 || !strings.Contains(rejected.Reason, c.want) {
			t.Errorf("%s: rejected as %+v, want %q", policy, rejected, c.want)
		}
		if err := (&Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}).effect().Record(t.Context(),
			pipeline.Env{Log: log}, message(submitted)); err != nil {
			t.Errorf("%s: delivered again: %v", policy, err)
		}
		if n := len(servicetest.All(t, log, events.Catalogue, events.WeightsPublishedType)); n != 0 {
			t.Fatalf("%s: it was published", policy)
		}
	}
	rejections := servicetest.All(t, log, events.Catalogue, events.WeightsRejectedType)
	if len(rejections) != 14 {
		t.Errorf("%d rejections: %v", len(rejections), servicetest.IDs(rejections))
	}
	submit(t, log, "header-is-no-json", "2", 1, good) // a bad version does not use its number up
	servicetest.Wait(t, log, events.Catalogue, events.WeightsPublishedType, "header-is-no-json", 1)
}

func TestVersionsOnlyGrow(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	submit(t, log, "small", "a", 3, model(t, log, 1))
	servicetest.Wait(t, log, events.Catalogue, events.WeightsPublishedType, "small", 1)
	submit(t, log, "small", "b", 2, model(t, log, 2))
	submit(t, log, "small", "c", 3, model(t, log, 3))
	for _, e := range servicetest.Wait(t, log, events.Catalogue, events.WeightsRejectedType, "small", 2) {
		rejected := servicetest.Data[events.WeightsRejected](t, e)
		want := map[int64]string{2: "versions only grow", 3: "other content"}[rejected.Version]
		if !strings.Contains(rejected.Reason, want) {
			t.Errorf("version %d is rejected: %s", rejected.Version, rejected.Reason)
		}
	}
	submit(t, log, "small", "d", 7, model(t, log, 2)) // gaps are fine
	all := servicetest.Wait(t, log, events.Catalogue, events.WeightsPublishedType, "small", 2)
	published := servicetest.Data[events.WeightsPublished](t, all[1])
	_, files, err := weights.Fetch(t.Context(), log.Store(), "small", 7)
	if err != nil || published.Version != 7 || published.ThroughStep != 7 ||
		!bytes.Equal(files[0].Data, safetensors(2)) {
		t.Errorf("published %+v: %v", published, err)
	}
	if current, manifest, err := weights.Current(t.Context(), log.Store(), "small"); err != nil || current != 7 ||
		manifest != published.Manifest {
		t.Errorf("the pointer names version %d: %v", current, err)
	}
}

// TestSubmissionTwice: a submission that is delivered again, or sent again, is one published
// version, also when a later one was published in between.
func TestSubmissionTwice(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	first := submit(t, log, "small", "a", 1, model(t, log, 1))
	again := submit(t, log, "small", "b", 1, model(t, log, 1))
	second := submit(t, log, "small", "c", 2, model(t, log, 2))
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	for _, e := range []events.Event{first, first, again, second, first, again, second} {
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(e)); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range []string{events.Catalogue, "r"} {
		if ids := servicetest.IDs(servicetest.All(t, log, run, events.WeightsPublishedType)); len(ids) != 2 {
			t.Errorf("run %s has %v", run, ids)
		}
	}
	if rejected := servicetest.All(t, log, events.Catalogue, events.WeightsRejectedType); len(rejected) != 0 {
		t.Errorf("rejected: %s", rejected[0].Data)
	}
}

// TestCrashAfterTheStore: a version came to stand in the store, and its publisher
// died before it stated it.
func TestCrashAfterTheStore(t *testing.T) {
	log := natstest.Log(t)
	for version := int64(1); version <= 2; version++ {
		data := safetensors(float32(version))
		if _, err := weights.Publish(t.Context(), log.Store(), "small", version,
			weights.Content{Name: "model.safetensors", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	first := submit(t, log, "small", "a", 1, model(t, log, 1))
	second := submit(t, log, "small", "b", 2, model(t, log, 2))
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	for _, e := range []events.Event{second, first} {
		if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(e)); err != nil {
			t.Fatal(err)
		}
	}
	servicetest.Wait(t, log, events.Catalogue, events.WeightsPublishedType, "small", 1)
	// Each submission has an outcome: the first one was overtaken.
	rejected := servicetest.WaitData[events.WeightsRejected](t, log, events.Catalogue,
		events.WeightsRejectedType, "small")
	if rejected.Version != 1 || !strings.Contains(rejected.Reason, "versions only grow") {
		t.Errorf("rejected as %+v", rejected)
	}
}

// TestRunsAreTold: open runs that use the policy learn of a version, others do not, and a run that
// is opened later is greeted with the current one.
func TestRunsAreTold(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	other := servicetest.Config("a")
	other.Policy = "large"
	servicetest.OpenRun(t, log, "uses", servicetest.Config("a"))
	servicetest.OpenRun(t, log, "other", other)
	servicetest.OpenRun(t, log, "closed", servicetest.Config("a"))
	servicetest.CloseRun(t, log, "closed")
	if err := log.Streams.EnsureRun(t.Context(), "being-opened"); err != nil {
		t.Fatal(err)
	}
	for version := int64(1); version <= 2; version++ {
		submit(t, log, "small", fmt.Sprint(version), version, model(t, log, float32(version)))
		servicetest.Wait(t, log, "uses", events.WeightsPublishedType, "small", int(version))
	}
	servicetest.OpenRun(t, log, "late", servicetest.Config("a"))
	greeting := servicetest.WaitData[events.WeightsPublished](t, log, "late", events.WeightsPublishedType, "small")
	if greeting.Version != 2 {
		t.Errorf("greeted with %+v", greeting)
	}
	for run, want := range map[string]int{"uses": 2, "late": 1, "other": 0, "closed": 0, "being-opened": 0} {
		if list := servicetest.All(t, log, run, events.WeightsPublishedType); len(list) != want {
			t.Errorf("run %s was told %v", run, servicetest.IDs(list))
		}
	}
}

// TestRunThatIsGone does not hold up the greeting of others.
func TestRunThatIsGone(t *testing.T) {
	log := natstest.Log(t)
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	submitted := submit(t, log, "small", "1", 1, model(t, log, 1))
	if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
		t.Fatal(err)
	}
	servicetest.OpenRun(t, log, "gone", servicetest.Config("a"))
	if err := log.Streams.DeleteRun(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	opening := servicetest.All(t, log, events.Catalogue, events.RunOpenedType)[0]
	if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(opening)); err != nil {
		t.Error(err)
	}
}

// TestUnreadableSubmission is given up at once: it will not get better.
func TestUnreadableSubmission(t *testing.T) {
	log := natstest.Log(t)
	e := servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsSubmittedType, "small",
		"1", json.RawMessage(`"no object"`)))
	if err := (&Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}).effect().Record(t.Context(),
		pipeline.Env{Log: log}, message(e)); err == nil ||
		!strings.Contains(err.Error(), "_/weights.small/submitted/1") {
		t.Errorf("%v", err)
	}
}
