// Package commits makes tasks of the commits of a repository that change both tests and code: it
// turns each into a row of SWE-bench's kind, whose tests have run in sandboxes with the fix and
// without it, and package swebench makes the task's folder. What users have made of an agent's
// answers are commits for it, too.
package commits

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Options say what to import.
type Options struct {
	Repository, Dir string
	Since           time.Time     // of the commits; zero: all
	Max             int           // tasks; 0: all
	Jobs            int           // commits at once
	Timeout         time.Duration // of one run of the tests
	Machine         tasks.Machine
	// Progress is told of each commit when it is done; ran says whether its tests ran.
	Progress func(id string, outcome Outcome, ran bool, err error)
}

// Report sums up an import, with what earlier ones into the same folder have found out.
type Report struct {
	Found   int            `json:"found"` // commits of those asked for, of merges only pull requests; or queries
	Tasks   []string       `json:"tasks"`
	Dropped map[string]int `json:"dropped"` // how many by each reason
	Failed  []string       `json:"failed"`  // those at which this machine failed
	Left    int            `json:"left"`    // those that were not looked at
	State   string         `json:"state"`   // the file that holds the outcome of each
	Seconds float64        `json:"seconds"`
}

// StateFile is the file in the folder of the tasks that holds what became of each commit.
const StateFile = ".commits.json"

// lockName is the file that an import into a folder holds, of commits or of sessions:
// they share what is fetched.
const lockName = ".import.lock"

// Bounds of an import.
const (
	maxCommits  = 100_000
	maxState    = 256 << 20 // bytes
	maxFailures = 3         // commits in a row at which the machine fails
	flushEvery  = 2 * time.Second
)

// maker makes tasks of the commits of a repository.
type maker struct {
	Options
	set, name string // of the tasks
	objects   *swebench.Objects
	modules   *fetcher
	packages  *packages
	node      func() (there, strips bool)
	pytest    func(context.Context) (bool, error)
}

type importer struct {
	maker
	file  string // of the state, in the folder of the tasks
	noun  string // of what tasks are made of
	tasks func(ctx context.Context, c commit, work string) (Outcome, error)

	// objection is why something must be no task by now, "" where it may; nil for none.
	objection func(ctx context.Context, c commit) (reason string, err error)

	release func() error // lets other imports into the folder

	mu       sync.Mutex
	state    state
	made     int // tasks
	failures int // in a row
	failed   []string
	written  time.Time // the state
	broken   error     // ends the import
}

// state is the file.
type state struct {
	Version int                `json:"version"`
	Commits map[string]Outcome `json:"outcomes"`
}

const stateVersion = 2

// Import makes tasks of a repository's commits, from new to old. What an earlier import into the
// same folder has decided holds. The report is also there beside an error.
func Import(ctx context.Context, o Options) (Report, error) {
	begin := time.Now()
	source, err := filepath.Abs(o.Repository)
	if err != nil {
		return Report{}, err
	}
	objects, head, err := swebench.Open(source)
	if err != nil {
		return Report{}, err
	}
	defer objects.Close()
	im, err := newImporter(ctx, o, StateFile, "commit")
	if err != nil {
		return Report{}, err
	}
	defer im.close()
	im.set, im.name, im.objects, im.tasks = "commits", nameOf(source), objects, im.judge
	list, err := im.walk(ctx, head)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", o.Repository, err)
	}
	err = im.all(ctx, list)
	report := im.report(list)
	report.Seconds = time.Since(begin).Seconds()
	return report, err
}

// newImporter begins an import of what has a name, whose outcomes stand in a file. Close it.
func newImporter(ctx context.Context, o Options, file, noun string) (*importer, error) {
	o.Jobs, o.Timeout = max(1, o.Jobs), cmp.Or(o.Timeout, 5*time.Minute)
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir // Git, and the tests, run in other folders
	kept := filepath.Join(dir, modulesFolder)
	m := maker{Options: o, modules: &fetcher{dir: kept, most: maxModules, sets: map[string]moduleSet{}},
		packages: newPackages(kept), node: nodeOf(ctx)}
	ask := m.hasPytest(ctx)
	m.pytest = func(context.Context) (bool, error) { return ask() }
	im := &importer{maker: m, file: file, noun: noun}
	if im.release, err = im.alone(); err != nil {
		return nil, err
	}
	if im.state, err = readState(im.stateFile()); err == nil {
		err = im.sweep()
	}
	if err != nil {
		im.close()
		return nil, err
	}
	return im, nil
}

// making begins the names of folders in which something becomes a task.
const making = ".making-"

// sweep removes what an import that was killed was making.
func (im *importer) sweep() error {
	entries, err := os.ReadDir(im.Dir)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), making) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(im.Dir, entry.Name())))
		}
	}
	return err
}

func (im *importer) close() {
	im.modules.close()
	im.packages.close()
	im.release()
}

// alone makes the folder, and keeps other imports out of it.
func (im *importer) alone() (release func() error, err error) {
	if err := os.MkdirAll(im.Dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(im.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := lockFile(file)
	if err == nil && !taken {
		err = fmt.Errorf("%s: another import works there", im.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}

func (im *importer) stateFile() string { return filepath.Join(im.Dir, im.file) }

// pulled are the merges that stand for a pull request: its title is the first
// line behind their subject.
var pulled = regexp.MustCompile(`^Merge pull request #\d+ from `)

// walk lists the commits that are no merges, and the merges of pull requests on the
// branch, the newest first.
func (im *importer) walk(ctx context.Context, head string) (list []commit, err error) {
	args := []string{"log", "--no-show-signature", "--no-color", "--encoding=UTF-8", "--format=%H%x09%P%x09%s",
		fmt.Sprintf("--max-count=%d", maxCommits+1)}
	if !im.Since.IsZero() {
		args = append(args, "--since="+im.Since.UTC().Format(time.RFC3339))
	}
	var all []merged
	err = im.objects.Git(ctx, nil, func(out io.Reader) error {
		text, err := readAll(out, maxTree)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			fields := strings.SplitN(strings.TrimRight(string(line), "\n"), "\t", 3)
			if len(fields) != 3 {
				return fmt.Errorf("git log: %.100q is not a commit", line)
			}
			all = append(all, merged{id: fields[0], parents: strings.Fields(fields[1]),
				pull: pulled.MatchString(fields[2])})
		}
		return nil
	}, append(args, head, "--")...)
	if len(all) > maxCommits {
		err = fmt.Errorf("more than %d commits: name the first day with --since", maxCommits)
	}
	return ofPulls(all, head), err
}

// merged is a commit in the list of all, the newest first.
type merged struct {
	id      string
	parents []string
	pull    bool
}

// ofPulls leaves merges out but those of pull requests on the branch of head, and says of the
// commits that such a merge has brought which it is.
func ofPulls(all []merged, head string) (list []commit) {
	known, branch := map[string]merged{}, []merged{}
	for _, m := range all {
		known[m.id] = m
	}
	owner := map[string]string{} // of a commit the merge that brought it, "" on the branch itself
	mainline := map[string]bool{}
	for at, more := known[head]; more; at, more = known[append(at.parents, "")[0]] {
		owner[at.id], mainline[at.id] = "", true
		branch = append(branch, at)
	}
	for _, m := range slices.Backward(branch) { // an older merge has brought what a newer one has, too
		for open := m.parents[min(1, len(m.parents)):]; len(open) > 0; {
			id := open[len(open)-1]
			open = open[:len(open)-1]
			if _, brought := owner[id]; brought {
				continue
			}
			owner[id] = ""
			if m.pull {
				owner[id] = m.id
			}
			open = append(open, known[id].parents...)
		}
	}
	for _, m := range all {
		merge := len(m.parents) > 1
		if merge && !(m.pull && mainline[m.id]) {
			continue
		}
		list = append(list, commit{id: m.id, parent: append(m.parents, "")[0], pull: merge, within: owner[m.id]})
	}
	return list
}

// all works on the commits that are not done, some at once, up to as many tasks as are wanted. A
// pull request comes before its commits.
func (im *importer) all(ctx context.Context, list []commit) error {
	var open [][]commit
	place := map[string]int{} // of a pull request's merge in open
	for _, c := range list {
		if im.isDecided(c) {
			if task := im.state.Commits[c.id].Task; task != "" && im.there(task) {
				im.made++
			}
			continue
		}
		if at, busy := place[c.within]; busy && c.within != "" {
			open[at] = append(open[at], c)
			continue
		}
		place[c.id] = len(open)
		open = append(open, []commit{c})
	}
	take := func() (some []commit) {
		im.mu.Lock()
		defer im.mu.Unlock()
		if len(open) > 0 {
			some, open = open[0], open[1:]
		}
		return some
	}
	var workers sync.WaitGroup
	for range im.Jobs {
		workers.Go(func() {
			for some := take(); len(some) > 0; some = take() {
				for _, c := range some {
					if im.stopped(ctx) {
						return
					}
					im.one(ctx, c)
				}
			}
		})
	}
	workers.Wait()
	im.mu.Lock()
	defer im.mu.Unlock()
	return errors.Join(im.broken, im.save(), context.Cause(ctx))
}

// stopped reports whether no commit more is worked on.
func (im *importer) stopped(ctx context.Context) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	return ctx.Err() != nil || im.broken != nil || im.enough()
}

// ofTask reports whether a commit is a part of a pull request that is a task.
func (im *importer) ofTask(c commit) (task string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.state.Commits[c.within].Task
}

// isDecided reports whether there is nothing more to find out about a commit: with more time, one
// that took too long may be a task, and so may one whose modules, or Go, this machine did not have.
func (im *importer) isDecided(c commit) bool {
	outcome, there := im.state.Commits[c.id]
	if outcome.Limit > 0 {
		return outcome.Limit >= im.Timeout.Seconds()
	}
	switch outcome.Reason {
	case Unfetched, NewerGo, NoNode, SlowPackages, SlowSearch:
		return false
	case Duplicate:
		return im.isTask(outcome.Detail)
	}
	return there
}

// isTask reports whether something has become the task of a name.
func (im *importer) isTask(name string) bool {
	for _, outcome := range im.state.Commits {
		if outcome.Task == name {
			return true
		}
	}
	return false
}

func (im *importer) enough() bool { return im.Max > 0 && im.made >= im.Max }

// one works on a commit, and notes what became of it.
func (im *importer) one(ctx context.Context, c commit) {
	id := im.taskOf(c)
	var outcome Outcome
	_, err := os.Lstat(filepath.Join(im.Dir, id))
	switch {
	case err == nil:
		outcome.Task = id // of an import whose state is gone: a folder of that name is whole
	case errors.Is(err, fs.ErrNotExist) && im.ofTask(c) != "":
		outcome, err = dropped(Part, im.ofTask(c)), nil
	case errors.Is(err, fs.ErrNotExist):
		var work string
		if work, err = os.MkdirTemp(im.Dir, making); err == nil {
			outcome, err = im.tasks(ctx, c, work)
			defer os.RemoveAll(work)
		}
	}
	im.note(ctx, c, outcome, err)
}

func (im *importer) note(ctx context.Context, c commit, outcome Outcome, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if ctx.Err() != nil || outcome.Task != "" && im.enough() {
		return
	}
	if twin := im.sameAs(c, outcome.Change); err == nil && outcome.folder != "" && twin != "" {
		files := outcome.Files
		outcome = dropped(Duplicate, twin)
		outcome.Files = files
	}
	if err == nil && outcome.folder != "" && im.objection != nil {
		var reason string
		if reason, err = im.objection(ctx, c); reason != "" {
			outcome = dropped(reason)
		}
	}
	if err == nil && outcome.folder != "" {
		err = os.Rename(outcome.folder, filepath.Join(im.Dir, outcome.Task))
	}
	if im.Progress != nil {
		im.Progress(c.id, outcome, outcome.ran, err)
	}
	if err != nil {
		im.failed = append(im.failed, c.id)
		if im.failures++; im.failures >= maxFailures {
			im.broken = cmp.Or(im.broken, fmt.Errorf("%s %s: %w (this machine failed %d times in a row)", im.noun,
				c.id, err, maxFailures))
		}
		return
	}
	im.failures = 0
	if outcome.Task != "" {
		im.made++
	}
	im.state.Commits[c.id] = outcome
	if outcome.ran || time.Since(im.written) > flushEvery {
		im.broken = cmp.Or(im.broken, im.save())
	}
}

// save writes the state in one step.
func (im *importer) save() error {
	im.written = time.Now()
	data, err := json.MarshalIndent(im.state, "", " ")
	if err != nil {
		return err
	}
	half := im.stateFile() + ".new"
	if err := os.WriteFile(half, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(half, im.stateFile())
}

func readState(name string) (s state, err error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Version: stateVersion, Commits: map[string]Outcome{}}, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxState) {
		err = fmt.Errorf("want a file of at most %d bytes", maxState)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && (s.Version != stateVersion || s.Commits == nil) {
		err = fmt.Errorf("version %d, want %d", s.Version, stateVersion)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w: without the file all that became no task are tried again", name, err)
	}
	return s, nil
}

// Removed is the reason of a commit whose task somebody took out of the
// folder: it is not made again.
const Removed = "its task was removed"

func (im *importer) there(task string) bool {
	_, err := os.Lstat(filepath.Join(im.Dir, task))
	return err == nil
}

func (im *importer) report(list []commit) Report {
	r := Report{Found: len(list), Tasks: []string{}, Dropped: map[string]int{},
		Failed: append([]string{}, im.failed...), State: im.stateFile()}
	for _, c := range list {
		switch outcome, there := im.state.Commits[c.id]; {
		case slices.Contains(r.Failed, c.id): // whatever an earlier import has found
		case !there:
			r.Left++
		case outcome.Task != "" && !im.there(outcome.Task):
			r.Dropped[Removed]++
		case outcome.Task != "":
			r.Tasks = append(r.Tasks, outcome.Task)
		default:
			r.Dropped[outcome.Reason]++
		}
	}
	return r
}
