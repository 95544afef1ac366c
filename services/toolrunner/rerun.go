package toolrunner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/egress"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolserver"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/storage"
)

// Repeated is what running a rollout's tools again has shown.
type Repeated struct {
	Turns, Calls int
	// Outside are the calls of servers outside of the sandbox, which are not made again: what they
	// answered is taken as recorded.
	Outside int
	// Agent are the turns of an agent's own program: it ran what they called, so that
	// nothing of them is run again.
	Agent int
	// Changed are the parts of results and workspaces that are not as recorded; none says
	// that all came out the same.
	Changed []pipeline.Changed
}

// Rerun runs the tool calls of a recorded rollout again, turn by turn in a sandbox of its own, and
// compares what they answer and what they leave in the workspace with the record. It states
// nothing and stores nothing.
//
// The sandbox goes on from turn to turn, as a tool runner's does. Where a turn comes out
// differently, it is tried once more in a new sandbox with the recorded workspace, as the
// recorded runner may have had to do, and the one with fewer differences counts. After a
// workspace that differs the next turn begins with the recorded one, so that one difference does
// not hide, or cause, others.
//
// Calls of servers outside of the sandbox are not made again: the world there is another one by
// now. Servers inside are started anew.
//
// Times, durations, the runner and the kind of sandbox are not compared. An error
// is of the infrastructure.
func Rerun(ctx context.Context, store storage.Store, opts Options, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) (Repeated, error) {
	var found Repeated
	if cfg.Agent != nil {
		found.Agent = len(r.Turns)
		return found, nil
	}
	if len(r.Observed) > 0 { // what an environment answered is taken as recorded: its world is another one by now
		found.Outside = len(r.Turns)
		return found, nil
	}
	searcher, err := newSearcher(store)
	if err != nil {
		return found, err
	}
	searcher.storeless = true
	set, err := tools.NewSet(cfg.ToolSettings())
	if err != nil {
		return found, err
	}
	gateway, err := egress.New(store, egress.Options{})
	if err != nil {
		return found, err
	}
	a := &rerun{way: wayOut(gateway, cfg, task, r).replayed(r), store: store, opts: opts, cfg: cfg, set: set,
		task: task, run: r.Run, rollout: r.ID, searcher: searcher}
	defer a.end()
	if r.Copied > 0 { // these turns ran elsewhere, as their origin's
		if a.before, err = r.WorkspaceAfter(r.Copied - 1); err != nil {
			return found, err
		}
	}
	for _, turn := range r.Turns[r.Copied:] {
		if laid := r.Laid(turn.Turn); laid != nil { // as the recorded runner did, begin the step in a new sandbox
			a.end()
			a.before = laid
		}
		recorded, answered := r.Tools.Get(turn.Turn)
		if !answered {
			continue
		}
		changed, err := a.turn(ctx, turn, recorded)
		if err != nil {
			return found, fmt.Errorf("rollout %s: turn %d: %w", r.ID, turn.Turn, err)
		}
		inside := a.repeatedCalls(turn)
		found.Turns++
		found.Calls += len(inside)
		found.Outside += len(turn.ToolCalls) - len(inside)
		found.Changed = append(found.Changed, changed...)
	}
	return found, nil
}

// rerun is a rollout whose tools run again.
type rerun struct {
	store   storage.Store
	opts    Options
	cfg     runfile.RunConfig
	set     *tools.Set
	task    runfile.TaskSpec
	run     string
	rollout string
	before  *storage.Ref  // the recorded workspace before the turn
	state   toolset.State // what the tools remembered before it
	box     *repeating    // with this workspace, nil where one has to be made

	searcher *searcher
	way      *way // to what the run has kept
}

func (a *rerun) end() {
	if a.box != nil {
		a.box.end()
		a.box = nil
	}
}

// repeating is a sandbox in which turns run again, with its servers.
type repeating struct {
	*sandbox.Sandbox
	servers *toolserver.Sessions
	proxy   *egress.Proxy
}

func (r *repeating) end() {
	r.servers.Close()
	r.proxy.Close()
	r.Close()
}

// attempt is how one turn came out in a sandbox.
type attempt struct {
	box     *repeating
	changed []pipeline.Changed
	same    bool // the workspace
	lost    bool // by the agent's doing nothing of the turn can be kept
}

// turn runs one turn, and leaves behind a sandbox for the next where its
// workspace is the recorded one.
func (a *rerun) turn(ctx context.Context, turn events.TurnSampled,
	recorded events.ToolsCompleted) ([]pipeline.Changed, error) {
	continued := a.box != nil
	best, err := a.try(ctx, a.box, turn, recorded)
	a.box = best.box
	if continued && (err != nil || len(best.changed) > 0) {
		fresh, freshErr := a.try(ctx, nil, turn, recorded)
		if freshErr == nil && (err != nil || len(fresh.changed) < len(best.changed)) {
			best, fresh, err = fresh, best, nil
		}
		a.box = best.box // the continued one where both are the same: it still has what is outside of the workspace
		if fresh.box != nil {
			fresh.box.end()
		}
	}
	if !best.same || best.lost || recorded.Lost != "" {
		a.end()
	}
	a.before, a.state = recorded.Workspace, toolset.State{}
	if recorded.State != nil {
		a.state = *recorded.State
	}
	return best.changed, err
}

// try runs one turn in a sandbox, nil for a new one, and reports what differs.
func (a *rerun) try(ctx context.Context, box *repeating, turn events.TurnSampled,
	recorded events.ToolsCompleted) (t attempt, err error) {
	t.box = box
	if box == nil {
		sb, err := restore(ctx, a.store, a.opts, a.task, a.rollout, a.before, a.way)
		if err != nil {
			return t, err
		}
		t.box = &repeating{sb, a.opts.sessions(sb, a.run), a.way.serve(sb)}
	}
	state := a.state
	ran, err := a.set.Run(ctx, tools.Work{Sandbox: t.box.Sandbox, Search: a.searcher.offered(a.cfg, a.task),
		Servers: t.box.servers.Call, State: &state}, a.repeatedCalls(turn))
	if err != nil {
		return t, a.lose(&t, turn, recorded, fault.Ended(err))
	}
	results, _, err := stated(ctx, a.cfg, ran, &state)
	if err != nil {
		return t, err
	}
	workspace, err := a.compareWorkspace(ctx, t.box.Sandbox, recorded.Workspace)
	if err != nil || recorded.Lost != "" {
		return t, a.lose(&t, turn, recorded, err)
	}
	t.same = len(workspace) == 0
	inside := slices.DeleteFunc(slices.Clone(recorded.Results),
		func(r events.ToolResult) bool { return a.set.IsRemote(tools.Call{Name: r.Name}) })
	t.changed = append(compareResults(inside, results), workspace...)
	t.changed = append(t.changed, compareState(recorded.State, state.OrNil())...)
	for _, missing := range t.box.proxy.Missing() {
		t.changed = append(t.changed, pipeline.NewChanged("network", "", missing))
	}
	for i := range t.changed {
		t.changed[i].Rollout, t.changed[i].Turn = a.rollout, &turn.Turn
	}
	return t, err
}

// lose compares a turn of which nothing can be kept now, or could be kept then, with the recorded
// one: whether that is so, and no more, as what the calls answer may depend on when the sandbox
// ended. Of another error it says nothing.
func (a *rerun) lose(t *attempt, turn events.TurnSampled, recorded events.ToolsCompleted, err error) error {
	t.lost = err != nil && fault.ClassOf(err) != ""
	if err != nil && !t.lost {
		return err
	}
	if t.lost == (recorded.Lost != "") {
		return nil
	}
	why := ""
	if t.lost {
		why = err.Error()
	}
	c := pipeline.NewChanged("lost", recorded.Lost, why)
	c.Rollout, c.Turn = a.rollout, &turn.Turn
	t.changed = []pipeline.Changed{c}
	return nil
}

// repeatedCalls are the calls of a turn that are made again.
func (a *rerun) repeatedCalls(turn events.TurnSampled) []tools.Call {
	return slices.DeleteFunc(called(turn.ToolCalls), a.set.IsRemote)
}

func compareResults(recorded, now []events.ToolResult) (changed []pipeline.Changed) {
	if len(recorded) != len(now) {
		return []pipeline.Changed{pipeline.NewChanged("results", len(recorded), len(now))}
	}
	for i, want := range recorded {
		got := now[i]
		for _, f := range []struct {
			field         string
			recorded, now any
		}{
			{"call_id", want.CallID, got.CallID}, {"name", want.Name, got.Name}, {"exit_code", code(want), code(got)},
			{"error", want.Error, got.Error},
			{"content", want.Content, got.Content}, {"dropped_bytes", want.DroppedBytes, got.DroppedBytes},
		} {
			if f.recorded != f.now {
				c := pipeline.NewChanged(f.field, f.recorded, f.now)
				c.Call, c.Tool = want.CallID, want.Name
				changed = append(changed, c)
			}
		}
	}
	return changed
}

// compareState compares what the tools remember.
func compareState(recorded, now *toolset.State) (changed []pipeline.Changed) {
	want, got := cmp.Or(recorded, &toolset.State{}), cmp.Or(now, &toolset.State{})
	if !reflect.DeepEqual(want.Shell, got.Shell) {
		changed = append(changed, pipeline.NewChanged("shell", want.Shell, got.Shell))
	}
	if !reflect.DeepEqual(want.Todos, got.Todos) {
		changed = append(changed, pipeline.NewChanged("todos", want.Todos, got.Todos))
	}
	return changed
}

// code is an exit code as it can be compared and read.
func code(r events.ToolResult) string {
	if r.ExitCode == nil {
		return "none"
	}
	return fmt.Sprint(*r.ExitCode)
}

// maxPaths bounds the paths of one workspace that are listed.
const maxPaths = 20

// compareWorkspace compares what the sandbox holds now with a recorded change, path by path: the
// digest of the same change may be another one where another version packed it.
func (a *rerun) compareWorkspace(ctx context.Context, box *sandbox.Sandbox,
	recorded *storage.Ref) ([]pipeline.Changed, error) {
	got, err := contentsNow(ctx, box)
	if err != nil {
		return nil, fault.Mark(err)
	}
	want, err := sandbox.Contents(changeOf(ctx, a.store, a.opts.parts, recorded))
	if err != nil {
		return nil, fmt.Errorf("recorded workspace: %w", err)
	}
	return comparePaths(want, got), nil
}

func comparePaths(want, got map[string]string) (changed []pipeline.Changed) {
	all := maps.Clone(want)
	maps.Copy(all, got)
	more := 0
	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch {
		case want[path] == got[path]:
		case len(changed) == maxPaths:
			more++
		default:
			changed = append(changed, pipeline.NewChanged("workspace/"+path, inWorkspace(want[path]),
				inWorkspace(got[path])))
		}
	}
	if more > 0 {
		changed = append(changed, pipeline.NewChanged("workspace", fmt.Sprintf("%d paths more differ", more), ""))
	}
	return changed
}

// inWorkspace is what a change says of a path.
func inWorkspace(entry string) string { return cmp.Or(entry, "as in the snapshot") }
