package weights

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/weights/engine"
	"github.com/rondo-rl/rondo/weights/fetch"
)

// Kinds of engines.
const (
	kindVLLM    = "vllm"
	kindLoRA    = "vllm-lora"
	kindSGLang  = "sglang"
	kindCommand = "command"

	kindSGLangLoRA = "sglang-lora"
)

var kinds = []string{kindVLLM, kindLoRA, kindSGLang, kindSGLangLoRA, kindCommand}

// sidecar fetches versions into a folder, and lets engines load them.
type sidecar struct {
	fetchOptions
	policy string
	plane  *plane.Plane
	folder *fetch.Folder

	keepers []*engine.Keeper

	mu   sync.Mutex // of what is printed
	show *app.Progress
	json bool
	out  io.Writer
}

// note is a line that says what has happened.
type note struct {
	Event   string  `json:"event"` // fetched, whole, refused, activated, lost, unproven, failed, removed
	Policy  string  `json:"policy"`
	Version int64   `json:"version,omitempty"`
	Replica string  `json:"replica,omitempty"`
	Dir     string  `json:"dir,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	Read    *int64  `json:"read,omitempty"`   // bytes, from the store
	Near    int64   `json:"near,omitempty"`   // of them, from the stores of --from
	Deltas  int     `json:"deltas,omitempty"` // that led to the version
	Seconds float64 `json:"seconds,omitempty"`
	Error   string  `json:"error,omitempty"`
	RetryIn float64 `json:"retry_in,omitempty"` // seconds
}

func (s *sidecar) print(n note) {
	n.Policy = s.policy
	s.mu.Lock()
	defer s.mu.Unlock()
	s.show.Clear()
	if s.json {
		_ = app.PrintJSON(s.out, n)
		return
	}
	line := fmt.Sprintf("%s  %s", time.Now().UTC().Format(time.TimeOnly), n.Event)
	if n.Version > 0 {
		line += fmt.Sprintf(" version %d", n.Version)
	}
	for _, part := range []struct {
		of   string
		some bool
	}{
		{" at " + n.Replica, n.Replica != ""}, {" in " + n.Dir, n.Dir != ""},
		{fmt.Sprintf(", %d bytes", n.Bytes), n.Bytes > 0},
		{read(n), n.Read != nil}, {fmt.Sprintf(", %d of them nearby", n.Near), n.Near > 0},
		{fmt.Sprintf(", %.1f s", n.Seconds), n.Seconds > 0},
		{": " + n.Error, n.Error != ""}, {fmt.Sprintf(" (again in %.0f s)", n.RetryIn), n.RetryIn > 0},
	} {
		if part.some {
			line += part.of
		}
	}
	fmt.Fprintln(s.out, line)
}

// attach makes the keepers of the engines.
func (s *sidecar) attach(key string) error {
	if s.kind == "" {
		return nil
	}
	urls := s.urls
	if len(urls) == 0 {
		urls = []string{""}
	}
	for i, url := range urls {
		e, err := s.engine(url, key)
		if err != nil {
			return err
		}
		replica := strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1") + "/v1"
		if url == "" {
			if replica, err = os.Hostname(); err != nil {
				return fmt.Errorf("--replica is needed: %w", err)
			}
		}
		if len(s.replicas) > 0 {
			replica = strings.TrimRight(s.replicas[i], "/")
		}
		if replica == "" || len(replica) > 128 {
			return fmt.Errorf("--replica %.140q: want 1 to 128 bytes", replica)
		}
		s.keepers = append(s.keepers, s.keeper(e, replica))
	}
	return nil
}

func (s *sidecar) engine(url, key string) (engine.Engine, error) {
	switch s.kind {
	case kindVLLM:
		e, err := engine.NewVLLM(url, key, nil)
		if err == nil {
			e.Update = s.update
		}
		return e, err
	case kindLoRA:
		return engine.NewLoRA(url, key, s.policy, s.to, s.adapters, nil)
	case kindSGLang:
		return engine.NewSGLang(url, key, nil)
	case kindSGLangLoRA:
		return engine.NewSGLangLoRA(url, key, s.policy, s.to, s.adapters, nil)
	case kindCommand:
		return engine.NewCommand(strings.Fields(s.exec), url, key, nil)
	}
	return nil, fmt.Errorf("--engine %q: want %s", s.kind, strings.Join(kinds, ", "))
}

// keeper keeps one engine, and tells the runs of it.
func (s *sidecar) keeper(e engine.Engine, replica string) *engine.Keeper {
	k := engine.NewKeeper(e)
	k.Tell = func(ctx context.Context, st engine.State) error {
		n := note{Event: "activated", Version: st.Version.Version, Replica: replica, Seconds: st.Took.Seconds()}
		if st.Lost {
			n.Event = "lost"
		}
		have, err := s.folder.Have(st.Version.Version)
		digest := ""
		if err == nil { // a version that is lost may have been removed
			digest = have.Digest
		}
		said := events.WeightsActivated{Version: st.Version.Version, Replica: replica, Digest: digest,
			Seconds: st.Took.Seconds(), Lost: st.Lost}
		if adapters, ok := e.(*engine.LoRA); ok {
			said.Model = adapters.Model(said.Version)
		}
		_, err = plane.Submit(ctx, s.plane, eventlog.Submission{
			Run: events.Catalogue, Type: events.WeightsActivatedType, Entity: s.policy,
			ID: noteID(s.policy, replica, st.Version.Version, st.Lost, st.At), Data: said,
		})
		if err == nil {
			s.print(n)
		}
		return err
	}
	k.Failed = func(v engine.Version, err error, wait time.Duration) {
		s.print(note{Event: "failed", Version: v.Version, Replica: replica, Error: err.Error(),
			RetryIn: wait.Seconds()})
	}
	k.Unproven = func(v engine.Version) {
		s.print(note{Event: "unproven", Version: v.Version, Replica: replica, Error: engine.ErrNoLogprobs.Error()})
	}
	return k
}

// update names to a server what lies in the folder of a version, and what has changed since
// the version that it serves.
func (s *sidecar) update(ctx context.Context, v engine.Version, from int64) (*engine.Update, error) {
	have, err := s.folder.Have(v.Version)
	if err != nil {
		return nil, err
	}
	u := &engine.Update{Digest: have.Digest, Files: map[string]string{}}
	for _, file := range have.Files {
		u.Files[file.Name] = file.SHA256
	}
	if from == 0 {
		return u, nil
	}
	changes, err := s.folder.Changes(ctx, from, v.Version)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // it is loaded whole
		s.print(note{Event: "whole", Version: v.Version, Error: err.Error()})
	default:
		u.Base, u.Changes = changes.Base, changes.Files
	}
	return u, nil
}

// fetch lays one version into the folder.
func (s *sidecar) fetch(ctx context.Context, version int64) (*fetch.Version, error) {
	began := time.Now()
	v, err := s.folder.Fetch(ctx, s.plane.Store, version, s.base, func(done, total int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.show.Show("version %d  %s  %.1f of %.1f MiB", version, bar(done, total),
			float64(done)/(1<<20), float64(total)/(1<<20))
	})
	if err != nil {
		return nil, err
	}
	if v.Whole != "" {
		s.print(note{Event: "whole", Version: version, Error: v.Whole})
	}
	if v.Refused != "" {
		s.print(note{Event: "refused", Version: version, Error: v.Refused})
	}
	s.print(note{Event: "fetched", Version: version, Dir: v.Dir, Bytes: v.Bytes(), Read: &v.Read, Near: v.Near,
		Deltas: v.Deltas, Seconds: time.Since(began).Seconds()})
	return v, nil
}

// read says what was read of a version.
func read(n note) string {
	switch {
	case n.Read == nil:
		return ""
	case n.Deltas == 0:
		return fmt.Sprintf(", %d read", *n.Read)
	case n.Deltas == 1:
		return fmt.Sprintf(", %d read by a delta", *n.Read)
	}
	return fmt.Sprintf(", %d read by %d deltas", *n.Read, n.Deltas)
}

// bar shows how much of something is done.
func bar(done, total int64) string {
	const width = 24
	full := 0
	if total > 0 {
		full = int(width * min(done, total) / total)
	}
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "]"
}

func (s *sidecar) asVersion(v *fetch.Version) engine.Version {
	return engine.Version{Policy: s.policy, Version: v.Version, Dir: v.Dir}
}

// once fetches one version and brings the engines to it.
func (s *sidecar) once(ctx context.Context) (err error) {
	version := s.version
	if version == 0 {
		if version, err = current(ctx, s.plane, s.policy); err != nil {
			return err
		}
	}
	if _, err := stat(ctx, s.plane.Store, s.policy, version); err != nil {
		return unknownVersion(s.policy, version, err)
	}
	v, err := s.fetch(ctx, version)
	if err != nil {
		return err
	}
	for _, k := range s.keepers {
		err = errors.Join(err, k.Bring(ctx, s.asVersion(v)))
	}
	return err
}

// follow fetches each version that is published, and keeps the engines at the
// newest, until the context ends.
func (s *sidecar) follow(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	for _, k := range s.keepers {
		working.Go(func() { k.Keep(ctx) })
	}
	if v, err := s.folder.Current(); err == nil { // while the log cannot be read, engines are kept at what is there
		s.aim(v)
	}
	failed := func(version int64) func(error, time.Duration) {
		return func(err error, wait time.Duration) {
			s.print(note{Event: "failed", Version: version, Error: err.Error(), RetryIn: wait.Seconds()})
		}
	}
	newest := make(chan int64, 1)
	working.Go(func() {
		_ = followPolicy(ctx, s.plane.Conn, s.plane.Log.Reader, s.policy, s.choice(), func(version int64) {
			select { // only this function fills it: a version that nobody took is replaced
			case <-newest:
			default:
			}
			newest <- version
		}, failed(0))
	})
	for {
		var version int64
		select {
		case <-ctx.Done():
			return
		case version = <-newest:
		}
		_ = fetchAgain.Keep(ctx, func() (bool, error) {
			if len(newest) > 0 { // another one
				return true, nil
			}
			v, err := s.fetch(ctx, version)
			if err != nil {
				return false, err
			}
			s.aim(v)
			s.tidy()
			return true, nil
		}, failed(version))
	}
}

// choice is the version that the engines are kept at: where one is promoted by hand that
// one, and else the newest.
func (s *sidecar) choice() choice {
	if s.canary {
		return events.WeightsPromoted.Canary
	}
	return events.WeightsPromoted.Main
}

func (s *sidecar) aim(v *fetch.Version) {
	for _, k := range s.keepers {
		k.Aim(s.asVersion(v))
	}
}

// tidy removes the versions that nobody needs.
func (s *sidecar) tidy() {
	var needed []int64
	for _, k := range s.keepers {
		needs, known := k.Needs()
		if !known {
			return
		}
		needed = append(needed, needs...)
	}
	if err := s.folder.Remove(s.keep, needed...); err != nil {
		s.print(note{Event: "failed", Error: err.Error()})
	}
}
