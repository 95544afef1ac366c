package dashboard

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of what is kept of the catalogue beside its runs.
const (
	maxVersions = 100 // of a policy, the newest
	maxReplicas = 256 // of a policy
	maxLetters  = 500 // dead letters, the newest
	maxRepos    = 256
)

// catalogue is what is folded of what outlives runs.
type catalogue struct {
	runs     map[string]*listedRun
	order    []string // runs in the order of their openings
	policies map[string]*served
	names    []string // of policies, in the order of their first versions
	letters  []letter
	lettered int // dead letters in all
	repos    []repo
}

// listedRun is what the catalogue knows of a run.
type listedRun struct {
	Name, Policy, Feed string
	Tasks              int
	Opened             time.Time
	Closed             bool
}

// served is what was published and served of a policy.
type served struct {
	Name     string
	Current  int64
	Versions []version
	Replicas []replica
	Rejected string // why the last submission was not published, "" where it was
	// submitted has the bytes of the files of what was not published yet, by version.
	submitted map[int64]int64
}

type version struct {
	Version int64
	Run     string
	Step    int64
	At      time.Time
	Bytes   int64 // of its files, 0 where nobody knows
}

// replica is what an inference server said last.
type replica struct {
	Name    string
	Version int64
	Lost    bool
	Seconds float64
	At      time.Time
}

type letter struct {
	Seq                            uint64
	At                             time.Time
	Stream, Consumer, Subject, Why string
	Body                           *storage.Ref // of a refused submission that is kept
}

// Redrivable reports whether a letter can be submitted again.
func (l letter) Redrivable() bool { return l.Stream == events.IntakeStream && l.Body != nil }

type repo struct {
	Name  string
	At    time.Time
	State index.State
}

func newCatalogue(string) *catalogue {
	return &catalogue{runs: map[string]*listedRun{}, policies: map[string]*served{}}
}

// apply folds the next event of the catalogue.
func (c *catalogue) apply(e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		opened, err := events.Data[events.RunOpened](e)
		r := &listedRun{Name: e.Entity, Policy: opened.Config.Policy, Tasks: len(opened.Config.Tasks), Opened: e.Time}
		if len(opened.Config.Feeds) > 0 {
			r.Feed = opened.Config.Feeds[0].Name
		}
		c.add(r)
		return err
	case events.RunClosedType:
		c.close(e)
	case events.SegmentSealedType:
		if c.runs[e.Entity] == nil {
			c.add(&listedRun{Name: e.Entity, Opened: e.Time})
		}
	case events.LogForgottenType:
		delete(c.runs, e.Entity)
		c.order = slices.DeleteFunc(c.order, func(run string) bool { return run == e.Entity })
	case events.DeadLetteredType:
		return c.lettersOf(e)
	case events.IndexUpdatedType:
		return c.indexed(e)
	}
	if e.Type.Kind() == events.WeightsPublishedType.Kind() {
		return c.weights(e)
	}
	return nil
}

// add lists a run, at its newest opening.
func (c *catalogue) add(r *listedRun) {
	if c.runs[r.Name] != nil {
		c.order = slices.DeleteFunc(c.order, func(run string) bool { return run == r.Name })
	}
	c.runs[r.Name] = r
	c.order = append(c.order, r.Name)
}

func (c *catalogue) lettersOf(e events.Event) error {
	dead, err := events.Data[events.DeadLettered](e)
	c.lettered++
	c.letters = append(c.letters, letter{e.Seq, e.Time, dead.Stream, dead.Consumer, dead.Subject,
		clip(dead.Reason, 1000), dead.Body})
	if len(c.letters) > maxLetters {
		c.letters = slices.Delete(c.letters, 0, len(c.letters)-maxLetters)
	}
	return err
}

func (c *catalogue) indexed(e events.Event) error {
	updated, err := events.Data[events.IndexUpdated](e)
	at := slices.IndexFunc(c.repos, func(r repo) bool { return r.Name == updated.Repo })
	if at < 0 {
		if len(c.repos) == maxRepos {
			return err
		}
		at, c.repos = len(c.repos), append(c.repos, repo{Name: updated.Repo})
	}
	c.repos[at].At, c.repos[at].State = e.Time, updated.State
	return err
}

// weights folds what is about a policy.
func (c *catalogue) weights(e events.Event) error {
	p := c.policies[e.Entity]
	if p == nil {
		p = &served{Name: e.Entity}
		c.policies[e.Entity] = p
		c.names = append(c.names, e.Entity)
	}
	switch e.Type {
	case events.WeightsPublishedType:
		w, err := events.Data[events.WeightsPublished](e)
		p.Current, p.Rejected = max(p.Current, w.Version), ""
		p.Versions = append(p.Versions, version{w.Version, w.Run, w.ThroughStep, e.Time, p.submitted[w.Version]})
		delete(p.submitted, w.Version)
		if len(p.Versions) > maxVersions {
			p.Versions = slices.Delete(p.Versions, 0, len(p.Versions)-maxVersions)
		}
		return err
	case events.WeightsSubmittedType:
		w, err := events.Data[events.WeightsSubmitted](e)
		bytes := int64(0)
		for _, f := range w.Files {
			bytes += f.Blob.Size
		}
		if p.submitted == nil || len(p.submitted) == maxVersions {
			p.submitted = map[int64]int64{}
		}
		p.submitted[w.Version] = bytes
		return err
	case events.WeightsRejectedType:
		w, err := events.Data[events.WeightsRejected](e)
		p.Rejected = clip(w.Reason, 1000)
		return err
	case events.WeightsActivatedType:
		w, err := events.Data[events.WeightsActivated](e)
		p.note(replica{w.Replica, w.Version, w.Lost, w.Seconds, e.Time})
		return err
	}
	return nil
}

// note notes what a replica states; where there are too many, the one that was
// silent longest is left out.
func (p *served) note(r replica) {
	p.Replicas = slices.DeleteFunc(p.Replicas, func(old replica) bool { return old.Name == r.Name })
	p.Replicas = append(p.Replicas, r)
	if len(p.Replicas) > maxReplicas {
		p.Replicas = slices.Delete(p.Replicas, 0, 1)
	}
}
