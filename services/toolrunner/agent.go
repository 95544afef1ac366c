package toolrunner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/storage"
)

// An agent is a program of a user's own that makes the episode of a rollout: one command, from the
// rollout's start to its end, in the sandbox of the rollout. What it asks of its model is recorded
// as turns while it runs; what it did to the workspace, and how it ended, is the answer to the call
// that started it.

// An agent that is lost with its sandbox, its runner or its machine is started anew, from
// the task's start: what it asks as before is answered from the log, and its commands run
// again. Each start behind recorded turns is a fact of its own, behind which no agent
// before it can record anything.

// Model is the way of one rollout's agent to its model.
type Model interface {
	http.Handler
	// Resume lets an agent that is started anew have the recorded turns of its rollout, which a
	// policy has sampled.
	Resume(policy string, r *events.Rollout)
	// End is closed when the agent must end.
	End() <-chan struct{}
	// Ended is why an agent has ended, here with a code, how often it has asked, and what the
	// machine failed behind the last turn.
	Ended(code int) (events.AgentEnded, error)
	// Knows reports whether a rollout has no turn and no start but those that this agent knows.
	Knows(r *events.Rollout) bool
	// Used is how much of its time the agent has used since it began.
	Used(began time.Time) time.Duration
	// Finished is the end of the episode, whose trajectory it stores; "" leaves the reason to the
	// last turn.
	Finished(ctx context.Context, r *events.Rollout, stopReason string) (events.RolloutFinished, error)
}

// modelKey is what an agent is told as the key of its model. It opens nothing: whose request it is
// follows from the sandbox that it comes from.
const modelKey = "rondo-sandbox"

// agentEnv is how an agent finds its model, in the words of the clients of several providers.
func agentEnv(policy string) map[string]string {
	base := "http://" + sandbox.ProxyAddress
	return map[string]string{
		"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_BASE": base + "/v1",
		"OPENAI_API_KEY": modelKey, "OPENAI_MODEL": policy,
		"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": modelKey, "ANTHROPIC_MODEL": policy,
		"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": modelKey, "GEMINI_MODEL": policy,
	}
}

// openLayer gives the agent's own files, nil where it has none. They are let go by Close.
func (s *Service) openLayer(ctx context.Context, digest string) (*agents.Opened, error) {
	switch {
	case digest == "":
		return nil, nil
	case s.opts.Layers == nil:
		return nil, errors.New("agent.layer: this tool runner keeps no layers")
	}
	return s.opts.Layers.Open(ctx, s.store, digest)
}

// elsewhereAfter is how long a delivery rests whose rollout has an agent somewhere: for as long as
// that one's runner says that it is at work the server keeps it.
const elsewhereAfter = 20 * time.Second

// agentEnd is how an agent ended, and what the log had of its rollout then. Where it has more,
// another runner's agent goes on with the rollout, and this end is none of it.
type agentEnd struct {
	answer          events.WorkspaceAnswered
	turns, restarts int
}

// agent runs the agent of a rollout, or says what follows from how it ended.
func (s *Service) agent(ctx context.Context, log eventlog.Reader, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout) ([]events.Event, error) {
	if r.CallUnderWay() == nil {
		return s.concluded(ctx, r)
	}
	key := r.Run + "/" + r.ID
	end, known := s.ended.Get(key)
	if !known {
		over, done := s.held.running(r.Run, r.ID)
		if done == nil {
			return nil, pipeline.RetryAfter(fmt.Errorf("the agent of %s runs here already", r.ID), elsewhereAfter)
		}
		defer done()
		ended, facts, err := s.runUntilEnded(ctx, log, cfg, task, r, over)
		if ended == nil {
			return facts, err
		}
		end = *ended
		s.ended.Add(key, end) // where a remark comes between, it need not run again
	}
	now, err := log.Rollout(ctx, r.Run, r.ID)
	if err != nil || now.Over() || now.CallUnderWay() == nil {
		return nil, err
	}
	if len(now.Turns) != end.turns || now.Restarts != end.restarts {
		s.ended.Remove(key)
		return nil, pipeline.RetryAfter(fmt.Errorf("the agent of %s ended: %w", r.ID, events.ErrElsewhere),
			elsewhereAfter)
	}
	fact, err := now.Next(events.WorkspaceAnsweredType, events.AgentCall, end.answer)
	if err != nil {
		return nil, err
	}
	now.Answers = append(now.Answers, end.answer)
	facts, err := s.concluded(ctx, &now)
	return append([]events.Event{fact}, facts...), err
}

// runUntilEnded runs the agent, and starts it anew where the machine loses it behind recorded
// turns. Without an answer it says what follows instead.
func (s *Service) runUntilEnded(ctx context.Context, log eventlog.Reader, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout, over <-chan struct{}) (ended *agentEnd, facts []events.Event, err error) {
	lost := errLost
	for {
		if len(r.Turns) > 0 && r.Restarts >= cfg.Limits.AgentRestarts {
			fact, err := r.Fail(events.StageTools, class(lost), fmt.Errorf(
				"%w behind %d turns (limits.agent_restarts: %d)", lost, len(r.Turns), cfg.Limits.AgentRestarts))
			return nil, []events.Event{fact}, err
		}
		done, turns, err := s.runAgent(ctx, log, cfg, task, r, over, lost)
		switch {
		case err == nil:
			return &agentEnd{done, turns, r.Restarts}, nil, nil
		case errors.Is(err, events.ErrElsewhere): // this runner was taken for dead
			return nil, nil, pipeline.RetryAfter(err, elsewhereAfter)
		case ctx.Err() != nil, outage.KindOf(err) != "", errors.Is(err, pipeline.ErrOvertaken):
			// It costs no try. Behind recorded turns the next start is a restart all the same, also
			// behind a shutdown: the agent is gone.
			return nil, nil, err
		}
		now, failed := log.Rollout(ctx, r.Run, r.ID)
		if failed != nil || now.Over() {
			return nil, nil, failed
		}
		if began := !done.StartedAt.IsZero(); !began || len(now.Turns) == 0 {
			facts, err := again(cfg, &now, err)
			return nil, facts, err
		}
		r, lost = &now, err
	}
}

// errLost is said of an agent whose runner is gone.
var errLost = errors.New("the tool runner that ran the agent was lost")

// resume states that an agent is started anew, where there are turns of one before it, which was
// lost, and gives its model these turns. Whoever was faster has the rollout.
func (s *Service) resume(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout, model Model, lost error) error {
	if len(r.Turns) == 0 {
		return nil
	}
	fact, err := r.Restart(class(lost), lost)
	if err != nil {
		return err
	}
	fact.Source = topology.ToolRunner
	_, adopted, err := s.publish(ctx, []events.Event{fact})
	if err == nil && adopted {
		err = events.ErrElsewhere
	}
	if err != nil {
		return err
	}
	r.Restarts++
	model.Resume(cfg.Policy, r)
	return nil
}

// concluded is what follows from how an agent ended: the end of the episode, or of the rollout.
func (s *Service) concluded(ctx context.Context, r *events.Rollout) ([]events.Event, error) {
	ended := r.AgentEnded()
	if ended == nil {
		return nil, nil
	}
	if ended.StopReason == "" {
		fact, err := r.Fail(events.StageTools, ended.Class, errors.New(ended.Why))
		return []events.Event{fact}, err
	}
	finished, err := s.opts.Model(r.Run, r.ID).Finished(ctx, r, ended.StopReason)
	if errors.Is(err, storage.ErrTooLarge) {
		fact, err := r.Fail(events.StageTools, events.ClassInternal, fmt.Errorf("encode trajectory: %w", err))
		return []events.Event{fact}, err
	}
	if err != nil {
		return nil, err
	}
	fact, err := r.Next(events.RolloutFinishedType, "0", finished)
	return []events.Event{fact}, err
}

// runAgent runs the agent to its end and stores what it left. An error is the machine's; where it
// comes behind the start of the program, StartedAt is set. lost is why one before it is gone.
// turns are those on the log behind which it ended.
func (s *Service) runAgent(ctx context.Context, log eventlog.Reader, cfg runfile.RunConfig, task runfile.TaskSpec,
	r *events.Rollout, over <-chan struct{}, lost error) (done events.WorkspaceAnswered, turns int, err error) {
	layer, err := s.openLayer(ctx, cfg.Agent.Layer)
	if err != nil {
		return done, 0, err
	}
	var files []sandbox.Mount
	if layer != nil {
		defer layer.Close()
		files = append(files, layer.Mount())
	}
	model := s.opts.Model(r.Run, r.ID)
	box, err := s.held.make(ctx, cfg, task, r, model, files)
	if err != nil {
		return done, 0, err
	}
	defer box.end()
	if err := sandbox.RequireIsolation(box.Isolation(), cfg.MinIsolation); err != nil {
		return done, 0, fmt.Errorf("sandbox of %s on %s: %w by min_isolation of the run", r.ID, s.runner, err)
	}
	values := placeholders(cfg, task, r)
	home := agents.Expand(cfg.Agent.Env["HOME"], values)
	for _, name := range slices.Sorted(maps.Keys(cfg.Agent.Files)) {
		content := agents.Expand(cfg.Agent.Files[name], values)
		if err := box.WriteFile(ctx, path.Join("/", cmp.Or(home, box.Env()["HOME"]), name),
			[]byte(content), 0o644); err != nil {
			return done, 0, fmt.Errorf("agent.files %s: %w", name, err)
		}
	}
	if err := s.resume(ctx, cfg, r, model, lost); err != nil {
		return done, 0, err
	}
	done = events.WorkspaceAnswered{Runner: s.runner, Isolation: box.Isolation(), Filesystem: box.FSMode(),
		StartedAt: time.Now().UTC()}
	limit := time.Duration(cfg.Limits.Timeout)
	if own := time.Duration(task.AgentTimeout); own > 0 { // what the turns so far took counts when they are recalled
		limit = min(limit, own)
	}
	stop, overtime, release := watchAgent(ctx, model, over, done.StartedAt, limit)
	ran, failed := box.Exec(ctx, s.command(cfg, task, values, stop))
	release()
	done.DurationMS = milliseconds(time.Since(done.StartedAt))
	if ctx.Err() != nil {
		return done, 0, ctx.Err()
	}
	own := ran.ExitCode
	if overtime() || ran.OutputExceeded { // it was killed
		own = 0
	}
	ended, unanswered := model.Ended(own)
	if errors.Is(unanswered, events.ErrElsewhere) {
		return done, 0, unanswered
	}
	if failed != nil {
		failed = fmt.Errorf("agent of %s: %w", r.ID, fault.Ended(failed))
		if fault.ClassOf(failed) == "" {
			return done, 0, failed
		}
		done.Lost, ended.OutOfMemory = reason(fault.ClassOf(failed), failed), errors.Is(failed, sandbox.ErrOutOfMemory)
	} else {
		done.ExitCode, done.TimedOut, done.DroppedBytes = &ran.ExitCode, overtime(), ran.DroppedBytes
		ended.Leftovers, ended.OutOfMemory = ran.Leftovers, ran.OutOfMemory
		if err := outage.Outlast(ctx, func() error {
			return s.keepOutput(ctx, cfg, &done, ran.Stdout, ran.Stderr)
		}); err != nil {
			return done, 0, fmt.Errorf("agent of %s: %w", r.ID, err)
		}
		if err := s.keepWorkspace(ctx, cfg, box, &done); err != nil {
			return done, 0, err
		}
	}
	var now events.Rollout
	err = outage.Outlast(ctx, func() (err error) {
		now, err = log.Rollout(ctx, r.Run, r.ID)
		return err
	})
	if err != nil {
		return done, 0, err
	}
	if !model.Knows(&now) {
		return done, 0, events.ErrElsewhere
	}
	judgeAgent(&ended, unanswered, &now, &done, ran)
	if ended.Class == events.ClassAgent && ended.Refused == 0 {
		ended.Why += whyUnstarted(ctx, box.Sandbox, s.store, home, layer, &done)
	}
	done.Agent = &ended
	return done, len(now.Turns), nil
}

// placeholders are what only the start of an agent knows. The session is a UUID of the rollout's
// own, by RFC 9562, version 8.
func placeholders(cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) map[string]string {
	id := sha256.Sum256([]byte(r.Run + "/" + r.ID))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	session := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	return map[string]string{
		agents.Instruction: task.Instruction, agents.Model: cfg.Policy,
		agents.BaseURL: "http://" + sandbox.ProxyAddress,
		agents.Key:     modelKey, agents.Session: session,
	}
}

// command is the agent's, in the sandbox.
func (s *Service) command(cfg runfile.RunConfig, task runfile.TaskSpec, values map[string]string,
	stop <-chan struct{}) sandbox.Command {
	env := agentEnv(cfg.Policy)
	env[runfile.InstructionVariable] = task.Instruction
	for name, value := range cfg.Agent.Env {
		env[name] = agents.Expand(value, values)
	}
	argv := make([]string, len(cfg.Agent.Command))
	for i, argument := range cfg.Agent.Command {
		argv[i] = agents.Expand(argument, values)
	}
	const longest = 24 * time.Hour // its own time is watched
	return sandbox.Command{Argv: argv, Env: env, Wall: longest, Stop: stop}
}

// watchAgent ends an agent when its time is over, when its model says so, and when its rollout is
// over, until release is called.
func watchAgent(ctx context.Context, model Model, over <-chan struct{}, began time.Time,
	limit time.Duration) (stop <-chan struct{}, overtime func() bool, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	stopped, late := make(chan struct{}), false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(stopped)
		const least = 50 * time.Millisecond
		for {
			left := limit - model.Used(began)
			if left <= 0 {
				late = true
				return
			}
			timer := time.NewTimer(max(left, least))
			select {
			case <-timer.C:
				continue
			case <-model.End():
			case <-over:
			case <-ctx.Done():
			}
			timer.Stop()
			return
		}
	}()
	return stopped, func() bool { return late }, func() {
		cancel()
		<-done
	}
}

// keepWorkspace stores the agent's workspace, and what it asked of the network.
func (s *Service) keepWorkspace(ctx context.Context, cfg runfile.RunConfig, box *leased,
	done *events.WorkspaceAnswered) (err error) {
	err = outage.Outlast(ctx, func() (err error) { done.Network, err = fetched(ctx, cfg, box.proxy); return err })
	if err != nil {
		return err
	}
	err = outage.Outlast(ctx, func() (err error) { done.Workspace, err = s.saveWorkspace(ctx, box); return err })
	if class := fault.ClassOf(err); class != "" && ctx.Err() == nil {
		done.Lost, err = reason(class, err), nil
	}
	return err
}

// judgeAgent says what follows from how an agent ended, by rule. What the machine failed is never
// the agent's; an agent that was never answered has nothing to be scored. What the agents before it
// were answered, and it was not, is none of its answers.
func judgeAgent(ended *events.AgentEnded, unanswered error, r *events.Rollout, done *events.WorkspaceAnswered,
	ran sandbox.Result) {
	fail := func(class, format string, args ...any) {
		ended.StopReason, ended.Class, ended.Why = "", class, fmt.Sprintf(format, args...)
	}
	code := ran.ExitCode
	taken := slices.DeleteFunc(slices.Clone(r.Turns), func(t events.TurnSampled) bool {
		return slices.Contains(ended.Left, t.Turn)
	})
	switch {
	case unanswered != nil:
		fail(events.ClassEndpoint, "the agent ended (code %d) behind a request that the machine did not answer: %v",
			code, unanswered)
	case len(taken) == 0 && done.Lost != "":
		fail(events.ClassAgent, "the agent asked nothing of its model: %s", done.Lost)
	case len(taken) == 0 && ended.Refused > 0:
		fail(events.ClassAgent,
			"the agent ended (code %d), and all of its %d requests were refused, the last one: %s", code,
			ended.Refused, ended.LastRefusal)
	case len(taken) == 0 && done.TimedOut:
		fail(events.ClassAgent, "the agent asked nothing of its model until limits.timeout was over")
	case len(taken) == 0 && code == exitNotFound:
		fail(events.ClassAgent,
			"the agent's command was not found in the sandbox (code %d): see agent.command, and agent.layer, of the run file", code)
	case len(taken) == 0 && code == exitNotExecutable:
		fail(events.ClassAgent,
			"the agent's command could not be started in the sandbox (code %d): see agent.command of the run file",
			code)
	case len(taken) == 0:
		fail(events.ClassAgent, "the agent ended with code %d and asked nothing of its model", code)
	case done.Lost != "":
		ended.StopReason = events.StopExit
	case ended.StopReason != "":
	case done.TimedOut:
		ended.StopReason = events.StopTimeout
	case ran.OutputExceeded:
		ended.StopReason = events.StopOutput
	case code != 0:
		ended.StopReason = events.StopExit
	default:
		last := taken[len(taken)-1]
		for _, t := range taken {
			if t.MaskedBy() == "" { // what is masked decides nothing about the others
				last = t
			}
		}
		ended.StopReason = last.Stopped()
	}
}

// Exit codes of POSIX shells for a program that cannot be run or found.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)
