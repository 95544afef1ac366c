package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// attempt is a subject, and who of the plane may publish to it.
type attempt struct {
	subject string
	owners  []string
}

// run and route of the attempts: permissions hold for any.
const (
	run   = "r"
	route = "pool-a"
)

func serviceNames(of func(topology.ServiceSpec) bool) (names []string) {
	for _, s := range topology.Services {
		if of(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// attempts are computed from the topology: what each service states, fetches, acknowledges and
// changes, and what nobody may.
func attempts() []attempt {
	var all []attempt
	add := func(subject string, owners ...string) { all = append(all, attempt{subject, owners}) }
	stated(add)
	consumed(add)
	managed(add)
	for _, p := range topology.Participants {
		for _, t := range p.States {
			place := run
			if strings.HasPrefix(string(t), "weights.") {
				place = events.Catalogue
			}
			var owners []string
			for _, other := range topology.Participants {
				if slices.Contains(other.States, t) || other.Redrives {
					owners = append(owners, other.Name)
				}
			}
			add(events.IntakeSubject(place, t, "x1"), owners...)
		}
	}
	for _, s := range topology.Services {
		var holds []string
		if s.Deciding {
			holds = []string{s.Name}
		}
		add("$KV."+topology.LeaseBucket+"."+run+"."+s.Name, holds...)
		add("$KV."+topology.LeaseBucket+"."+run+"."+s.Name+".x", holds...) // of a feed
		add("$KV." + topology.LeaseBucket + "." + run + "." + s.Name + "x")
		add("$KV." + topology.LeaseBucket + "." + s.Name)
	}
	add(topology.AliveSubject+"x", topology.ToolRunner)
	add("$SYS.REQ.SERVER.PING")
	return all
}

// stated: facts of each type, in a run and in the catalogue.
func stated(add func(string, ...string)) {
	both := []events.Type{events.RunOpenedType, events.RunClosedType, events.WeightsPublishedType,
		events.IndexUpdatedType}
	for _, t := range events.Types() {
		// what left a run's stream is said in the run
		catalogue := slices.Contains([]string{"weights", "log", "repo"}, t.Kind()) && t != events.LogPurgedType
		for _, place := range []string{run, events.Catalogue} {
			e := events.Event{Run: place, Type: t, Entity: "x1"}
			if t.Routed() {
				e.Route = route
			}
			var owners []string
			if slices.Contains(both, t) || catalogue == (place == events.Catalogue) {
				owners = serviceNames(func(s topology.ServiceSpec) bool { return slices.Contains(s.Emits, t) })
			}
			add(e.Subject(), owners...)
		}
	}
}

// consumed: the consumers of each service.
func consumed(add func(string, ...string)) {
	queue, _ := topology.QueueOf(events.IntakePrefix + run + ".batch.trainer.consumed")
	for _, spec := range topology.Consumers {
		c := spec.For(run, route)
		if spec.Shared() {
			c = c.ForQueue(queue)
		}
		add("$JS.API.CONSUMER.MSG.NEXT."+c.Stream+"."+c.Name, c.Service)
		add("$JS.ACK."+c.Stream+"."+c.Name+".1.2.3.4.5", c.Service)
		create := "$JS.API.CONSUMER.CREATE." + c.Stream + "." + c.Name
		switch f := c.Filter(route); {
		case spec.Shared():
			add(create+"."+queue.Filter, c.Service)
			add(create)
			add("$JS.API.CONSUMER.CREATE."+c.Stream+"."+spec.ForStrangers(nil).Name, c.Service)
		case f == "":
			add(create, c.Service)
		case c.Type.Routed():
			add(create+"."+f, c.Service)
			// Who folds runs makes consumers of whole runs under names of his own; which of them
			// are a tool runner's no wildcard can tell.
			add(create, append(serviceNames(func(s topology.ServiceSpec) bool { return s.Deciding || s.Folds }),
				topology.Dashboard)...)
		case c.Service == topology.Environment: // users' workers make none
			add(create+"."+f, topology.Intake)
			add(create)
		default:
			add(create+"."+f, c.Service)
			add(create)
		}
		for _, forbidden := range []string{"DELETE", "PAUSE", "LEADER.STEPDOWN", "UNPIN", "RESET"} {
			var may []string
			switch {
			case forbidden != "DELETE":
			case spec.Shared():
				may = []string{c.Service}
			case spec.PerRun(): // those of closed runs
				may = []string{topology.Archiver}
			}
			add("$JS.API.CONSUMER."+forbidden+"."+c.Stream+"."+c.Name, may...)
		}
		add("$JS.API.CONSUMER.DURABLE.CREATE." + c.Stream + "." + c.Name)
		add("$JS.API.CONSUMER.CREATE." + c.Stream) // the old way, with the name in the body
	}
}

// managed: the streams themselves.
func managed(add func(string, ...string)) {
	for _, stream := range []string{events.RunStream(run), events.CatalogueStream,
		events.IntakeStream, events.DeadStream} {
		add("$JS.API.STREAM.CREATE."+stream, topology.Intake)
		var purges []string
		if stream == events.RunStream(run) {
			purges = []string{topology.Archiver}
		}
		if stream == events.IntakeStream {
			purges = []string{topology.Intake}
		}
		add("$JS.API.STREAM.PURGE."+stream, purges...)
		for _, forbidden := range []string{"UPDATE", "DELETE", "SNAPSHOT", "RESTORE",
			"LEADER.STEPDOWN", "PEER.REMOVE"} {
			add("$JS.API.STREAM." + forbidden + "." + stream)
		}
		var deletes, reads []string
		switch stream {
		case events.IntakeStream:
			deletes, reads = []string{topology.DeadLetters}, []string{topology.DeadLetters}
		case events.DeadStream:
		default:
			reads = append(serviceNames(func(topology.ServiceSpec) bool { return true }), topology.Policy,
				topology.Trainer, topology.Gateway, topology.Dashboard)
		}
		add("$JS.API.STREAM.MSG.DELETE."+stream, deletes...)
		add("$JS.API.STREAM.MSG.GET."+stream, reads...)
		add("$JS.API.DIRECT.GET."+stream, reads...)
	}
}

// differences tries everything as a user who should be the service, and lists what the server does
// otherwise than the table says.
func differences(t *testing.T, u user, service string) (wrong []string) {
	t.Helper()
	for _, a := range attempts() {
		want := slices.Contains(a.owners, service)
		if got := u.mayPublish(t, a.subject); got != want {
			wrong = append(wrong, fmt.Sprintf("%s may publish %s: %v, want %v", service, a.subject, got, want))
		}
	}
	return append(wrong, listening(t, u, service)...)
}

// listening tries to hear what is meant for others.
func listening(t *testing.T, u user, service string) (wrong []string) {
	t.Helper()
	for _, other := range append(auth.Everybody(), "outside", "greedy") {
		subject := topology.ServiceInbox(other) + ".>"
		if got := u.maySubscribe(t, subject); got != (other == service) {
			wrong = append(wrong, fmt.Sprintf("%s may hear %s: %v", service, subject, got))
		}
	}
	for subject, owners := range map[string][]string{
		">": nil, "_INBOX.>": nil, "rondo.>": nil, "rondo.in.>": nil, "$JS.>": nil, "$KV.>": nil, "$SYS.>": nil,
		topology.AliveSubject + "*": {topology.ToolRunner},
	} {
		if got := u.maySubscribe(t, subject); got != slices.Contains(owners, service) {
			wrong = append(wrong, fmt.Sprintf("%s may hear %s: %v", service, subject, got))
		}
	}
	return wrong
}

// TestEverybodyOnEverySubject tries every service's credentials on every other one's subjects.
func TestEverybodyOnEverySubject(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	admin := adminLog(t, s, dir)
	if err := admin.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, name := range auth.Everybody() {
		if name == topology.Admin {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, wrong := range differences(t, connect(t, s, creds(dir, name)), name) {
				t.Error(wrong)
			}
		})
	}
}

// TestOneRightTooMany gives a user more than its service has, each time one more thing, and
// sees the matrix find it.
func TestOneRightTooMany(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	command(t, "auth", "user", "greedy", "--out", dir, "--service", topology.Generator, "--service", topology.Scorer)
	s := serve(t, dir, auth.ConfigFile)
	adminLog(t, s, dir)
	wrong := differences(t, connect(t, s, creds(dir, "greedy")), topology.Generator)
	for _, what := range []string{"rollout.x1.scored", "CONSUMER.MSG.NEXT.RONDO_r.scorer-v1",
		"$JS.ACK.RONDO_r.scorer-v1.", "CONSUMER.CREATE.RONDO_r.scorer-v1.", "_INBOX.greedy.>"} {
		if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, what) }) {
			t.Errorf("the matrix does not see that the user has %s: %q", what, wrong)
		}
	}
}
