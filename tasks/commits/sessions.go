package commits

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons of what the log says of a query.
const (
	NoConsent  = "the user has not agreed"
	Withdrawal = "its rollout is invalidated"
	NoFinal    = "the user's final files are not recorded"
	NoAnswer   = "the agent has not finished"
	NoFiles    = "it began with an image's files"
)

// Reasons of a query's files.
const (
	LostFiles       = "its files are not in the store"
	UnreadableFiles = "its files cannot be unpacked"
	SlowSearch      = "its files cannot be searched for secrets in time"
	OddNames        = "names of files or links that no task can have"
	SecretName      = "the name of a file holds a secret"
	NoChange        = "the user's final files are those that it began with"
	NoCorrection    = "the user changed nothing of what the agent left"
	Duplicate       = "the same change as another task"
	AgentUntried    = "the agent's answer cannot be tried"
	AgentPasses     = "no test tells the user's final files from the agent's"
)

// SessionsFile is the file in the folder of the tasks that holds what became of each query.
const SessionsFile = ".sessions.json"

// maxQueries bounds the queries of a run.
const maxQueries = 100_000

// session is a user's query with what the agent and the user made of the files that it began with.
type session struct {
	query     string
	wish      string // the instruction, of a user who has agreed
	consent   bool
	withdrawn bool
	began     storage.Ref
	final     *storage.Ref
	judged    *answer // that the final files are made of
}

// answer is a rollout of a query.
type answer struct {
	session  *session
	links    []events.Event // until it is over
	finished bool
	left     *storage.Ref // its change of the files; nil for none
}

// refusal is why nothing of the query is looked at, "" where it is.
func (s *session) refusal() string {
	switch {
	case !s.consent:
		return NoConsent
	case s.withdrawn:
		return Withdrawal
	case s.final == nil:
		return NoFinal
	case !s.judged.finished:
		return NoAnswer
	case s.began.Key == "":
		return NoFiles
	}
	return ""
}

// files tells the files that an outcome is of from those that came later.
func (s *session) files() string {
	left := storage.Ref{}
	if s.judged.left != nil {
		left = *s.judged.left
	}
	return storage.Digest([]byte(s.final.SHA256 + " " + left.SHA256))
}

// sessionReader folds a run, or its archive, into its queries in their order.
type sessionReader struct {
	log      eventlog.Reader
	run      string
	next     uint64 // sequence to read
	snapshot func(query events.QuerySubmitted) storage.Ref
	list     []*session
	queries  map[string]*session
	answers  map[string]*answer
}

// sessionsOf reads the queries that there are.
func sessionsOf(ctx context.Context, log eventlog.Reader, run string) (*sessionReader, error) {
	cfg, err := log.RecordedConfig(ctx, run)
	if err != nil {
		return nil, err
	}
	r := &sessionReader{log: log, run: run, next: 1, queries: map[string]*session{}, answers: map[string]*answer{}}
	r.snapshot = func(query events.QuerySubmitted) storage.Ref {
		task, err := cfg.Task(query.Task)
		if err != nil {
			return storage.Ref{} // the intake takes no such query
		}
		return query.TaskSpec(task.Name, task).Snapshot
	}
	return r, r.catchUp(ctx)
}

// catchUp reads what has come.
func (r *sessionReader) catchUp(ctx context.Context) error {
	for e, err := range r.log.All(ctx, r.run, r.next) {
		if err == nil {
			err = r.take(e)
		}
		if err != nil {
			return fmt.Errorf("run %s: %s: %w", r.run, e.ID, err)
		}
		r.next = e.Seq + 1
	}
	return nil
}

func (r *sessionReader) take(e events.Event) error {
	switch e.Type {
	case events.QuerySubmittedType:
		return r.ask(e)
	case events.RolloutStartedType:
		started, err := events.Data[events.RolloutStarted](e)
		if asked := r.queries[started.Task]; asked != nil && asked.consent {
			r.answers[e.Entity] = &answer{session: asked, links: []events.Event{e}}
		}
		return err
	}
	a := r.answers[e.Entity]
	if a == nil {
		return nil
	}
	switch e.Type {
	case events.FeedbackRecordedType:
		feedback, err := events.Data[events.FeedbackRecorded](e)
		if feedback.Repository != nil {
			a.session.final, a.session.judged = &feedback.Repository.Archive, a
		}
		return err
	case events.RolloutInvalidatedType:
		a.session.withdrawn = true
	case events.RolloutFinishedType:
		return a.finish(e)
	case events.RolloutFailedType, events.RolloutScoredType:
		a.links = nil
	default:
		if a.links != nil && e.Type.Kind() == events.RolloutStartedType.Kind() {
			a.links = append(a.links, e)
		}
	}
	return nil
}

func (r *sessionReader) ask(e events.Event) error {
	query, err := events.Data[events.QuerySubmitted](e)
	if err != nil {
		return err
	}
	if len(r.list) == maxQueries {
		return fmt.Errorf("more than %d queries", maxQueries)
	}
	s := &session{query: e.Entity, consent: query.Consent, began: r.snapshot(query)}
	if s.consent {
		s.wish = query.Instruction
	}
	r.list = append(r.list, s)
	r.queries[e.Entity] = s
	return nil
}

// finish notes the files that an answer has left.
func (a *answer) finish(e events.Event) error {
	folded, err := events.FoldRollout(append(a.links, e))
	a.links, a.finished = nil, true
	if err != nil {
		return err
	}
	if a.left = folded.Workspace(); folded.Finished.Workspace != nil {
		a.left = folded.Finished.Workspace
	}
	return nil
}

// sessionImporter makes tasks of the queries of a run.
type sessionImporter struct {
	*importer
	read     *sessionReader
	sessions map[string]session // as they were when the import began
}

// ImportSessions makes tasks of a run's queries whose users changed what the agent left, from
// new to old: the query is the instruction, the files that it began with are the repository,
// and the tests are those of the user's final files. A task whose user no longer agrees is
// removed, and one whose user has handed in other files is made anew. Otherwise what an earlier
// import into the same folder has decided holds. The report is also there beside an error.
func ImportSessions(ctx context.Context, o Options, log eventlog.Reader, run string) (Report, error) {
	begin := time.Now()
	im, err := newImporter(ctx, o, SessionsFile, "query")
	if err != nil {
		return Report{}, err
	}
	defer im.close()
	read, err := sessionsOf(ctx, log, run) // behind the lock: no import that knows less goes on
	if err != nil {
		return Report{}, err
	}
	r := &sessionImporter{im, read, map[string]session{}}
	im.set, im.name, im.tasks, im.objection = "sessions", nameOf(run), r.judgeSession, r.withdrawn
	var list []commit
	refused := map[string]int{}
	for _, s := range slices.Backward(read.list) {
		c := commit{id: run + "/" + s.query, task: sessionTask(run, s.query)}
		if reason := s.refusal(); reason != "" {
			refused[reason]++
			if err := r.refuse(c, s, reason); err != nil {
				return Report{}, err
			}
			continue
		}
		if err := r.reopen(c, s); err != nil {
			return Report{}, err
		}
		list = append(list, c)
		r.sessions[c.id] = *s
	}
	err = im.all(ctx, list)
	report := im.report(list)
	for reason, n := range refused {
		report.Found += n
		report.Dropped[reason] += n
	}
	report.Seconds = time.Since(begin).Seconds()
	return report, err
}

// sessionTask names the task of a query.
func sessionTask(run, query string) string {
	full := run + "." + query
	name := nameOf(full)
	if name != full {
		name += "-" + storage.Digest([]byte(full))[:16]
	}
	return name
}

// refuse removes the task of a query whose user does not, or no longer, agree.
func (r *sessionImporter) refuse(c commit, s *session, reason string) error {
	if r.Progress != nil {
		r.Progress(c.id, Outcome{Reason: reason}, false, nil)
	}
	if s.consent && !s.withdrawn {
		return nil
	}
	return r.forget(c)
}

// reopen forgets what became of other files than those that a query has now.
func (r *sessionImporter) reopen(c commit, s *session) error {
	if r.state.Commits[c.id].Files == s.files() {
		return nil
	}
	return r.forget(c)
}

func (r *sessionImporter) forget(c commit) error {
	delete(r.state.Commits, c.id)
	return os.RemoveAll(filepath.Join(r.Dir, c.task))
}

// withdrawn reports whether a rollout of a query was invalidated while its tests ran.
func (r *sessionImporter) withdrawn(ctx context.Context, c commit) (reason string, err error) {
	query := r.sessions[c.id].query
	if err := r.read.catchUp(ctx); err != nil || !r.read.queries[query].withdrawn {
		return "", err
	}
	return Withdrawal, nil
}

// judgeSession makes a query a task, in a folder below work, or says why it is none.
func (r *sessionImporter) judgeSession(ctx context.Context, c commit, work string) (Outcome, error) {
	s := r.sessions[c.id]
	outcome, err := r.judgeFiles(ctx, c, s, work)
	outcome.Files = s.files()
	return outcome, err
}

func (r *sessionImporter) judgeFiles(ctx context.Context, c commit, s session, work string) (Outcome, error) {
	objects, err := swebench.Create(filepath.Join(work, "repository"))
	if err != nil {
		return Outcome{}, err
	}
	defer objects.Close()
	trees := &treeWriter{objects: objects, store: r.read.log.Store(), mask: newMasker()}
	began, agent, final, err := trees.ofSession(ctx, &s)
	if refused, ok := errors.AsType[*refusedTree](err); ok {
		return dropped(refused.reason, refused.detail), nil
	}
	if err != nil {
		return Outcome{}, err
	}
	change := hex.EncodeToString(append(slices.Clone(began.content[:8]), final.content[:8]...))
	switch twin := r.sameAsLocked(c, change); {
	case final.content == began.content:
		return dropped(NoChange), nil
	case final.content == agent.content:
		return dropped(NoCorrection), nil
	case twin != "":
		return dropped(Duplicate, twin), nil
	}
	m := r.maker
	m.objects, m.Repository = objects, objects.Dir()
	c.id, c.parent, c.agent = final.id, began.id, agent.id
	outcome, err := m.judge(ctx, c, work)
	outcome.Masked = trees.mask.found
	if outcome.Task != "" {
		outcome.Change = change
	}
	return outcome, err
}

// sameAs is the task of another commit that is made of the same change, "" for none.
func (im *importer) sameAs(c commit, change string) string {
	for id, other := range im.state.Commits {
		if change != "" && id != c.id && other.Change == change {
			return other.Task
		}
	}
	return ""
}

func (im *importer) sameAsLocked(c commit, change string) string {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.sameAs(c, change)
}

// storedSource reads a packed tree, and notes what the store did wrong: all else
// is wrong with the archive.
type storedSource struct {
	io.Reader
	io.Closer
	failed *error
}

func (s storedSource) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*s.failed = err
	}
	return n, err
}
