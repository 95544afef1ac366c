package toolrunner

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
)

// offer is what this runner has for tasks.
type offer struct {
	cpus     int
	memoryMB int // 0: unknown
	labels   []string
	room     func(diskMB int) error
	// lacks says why a toolchain or a container engine cannot be had here; nil when they can.
	lacks  func(ctx context.Context, toolchain string) error
	engine func(ctx context.Context) error

	mu   sync.Mutex
	told map[string]bool // run and key of needs that are not met, which the log has been told
}

func newOffer(opts Options) *offer {
	return &offer{
		cpus: runtime.GOMAXPROCS(0), memoryMB: hostMemoryMB(), labels: opts.Labels, told: map[string]bool{},
		room: opts.Room, lacks: sandbox.HasToolchain, engine: sandbox.HasEngine,
	}
}

// missing says what of the needs this runner does not have; nil when it has everything.
func (o *offer) missing(ctx context.Context, needs runfile.Needs) error {
	for _, toolchain := range needs.Toolchains {
		if err := o.lacks(ctx, toolchain); err != nil {
			return err
		}
	}
	if needs.CPUs > o.cpus {
		return fmt.Errorf("%d CPUs: this runner has %d", needs.CPUs, o.cpus)
	}
	if o.memoryMB > 0 && needs.MemoryMB > o.memoryMB {
		return fmt.Errorf("%d MiB of memory: this runner has %d", needs.MemoryMB, o.memoryMB)
	}
	if err := o.room(needs.DiskMB); err != nil {
		return err
	}
	for _, label := range needs.Labels {
		if !slices.Contains(o.labels, label) {
			return fmt.Errorf("label %s: this runner's are %q (--label)", label, o.labels)
		}
	}
	if needs.Engine {
		return o.engine(ctx)
	}
	return nil
}

// hostMemoryMB is the memory of the machine, 0 where that is not told.
func hostMemoryMB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) { // "MemTotal:       24600000 kB"
		if fields := bytes.Fields(line); len(fields) == 3 && string(fields[0]) == "MemTotal:" {
			kilobytes, _ := strconv.Atoi(string(fields[1]))
			return kilobytes >> 10
		}
	}
	return 0
}

// routes are those that this runner serves in a run: for each different needs of its tasks
// that are met here, the pool's, its own, and those of runners that are gone. Those without
// needs are served in any case.
func (s *Service) routes(ctx context.Context, env pipeline.Env, run string) []string {
	met := map[string]bool{"": true}
	routes := []string{runfile.PoolRoute(s.opts.Pool, runfile.Needs{}), runfile.RunnerRoute(s.runner, runfile.Needs{})}
	cfg, err := env.Log.Config(ctx, run)
	if err != nil {
		return routes // the rest comes when it is asked again
	}
	for _, needs := range cfg.DifferentNeeds() {
		key := needs.Key()
		if key == "" {
			continue
		}
		if missing := s.offer.missing(ctx, needs); missing != nil {
			s.offer.tell(env.Logger, run, key, missing)
			continue
		}
		met[key] = true
		routes = append(routes, runfile.PoolRoute(s.opts.Pool, needs), runfile.RunnerRoute(s.runner, needs))
	}
	return append(routes, s.heartbeats.orphans(ctx, run, met)...)
}

// tell logs once what tasks of a run will not be worked on here, and why.
func (o *offer) tell(logger *slog.Logger, run, key string, missing error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const most = 10_000 // of a process that serves runs for years
	if name := run + "/" + key; !o.told[name] && len(o.told) < most {
		o.told[name] = true
		logger.Warn("tasks not offered", "run", run, "missing", missing)
	}
}
