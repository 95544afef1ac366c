package topology

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Role is what an outsider is to a run.
type Role string

// The roles of outsiders.
const (
	RoleTrainer  Role = "trainer"
	RoleHarness  Role = "harness"
	RoleProduct  Role = "product"
	RoleServer   Role = "inference"
	RoleOperator Role = "operator"
	RoleTeacher  Role = "teacher"
	RoleWorker   Role = "environment"
)

// RoleSpec lists the types that an outsider in a role may submit.
type RoleSpec struct {
	Role   Role
	States []events.Type
	// Feed and Policy: the facts are about one feed, or one policy, which must be named.
	Feed, Policy bool
	// Hears are the types of facts that the server tells it of, beside
	// those of its feed and policy.
	Hears []events.Type
	// Takes: it takes work from the consumers of users' workers, and hears of all
	// that happens to rollouts.
	Takes bool
	// Mirrors: it says how far a mirror of its policy is behind.
	Mirrors bool
	Purpose string
}

// Roles is the table of what outsiders can be.
var Roles = []RoleSpec{
	{Role: RoleTrainer, States: []events.Type{events.BatchConsumedType, events.BatchCheckpointedType,
		events.BatchRewoundType, events.WeightsSubmittedType}, Feed: true,
		Policy: true, Purpose: "takes batches of its feed and submits weights of its policy"},
	{Role: RoleHarness, States: []events.Type{events.GroupOpenedType, events.RolloutStartedType, events.TurnSampledType,
		events.WorkspaceCalledType, events.RolloutFinishedType,
		events.RolloutScoredType, events.RolloutFailedType, events.RolloutAnnotatedType, events.CaptureBegunType,
		events.CaptureRecordedType, events.CaptureIncompleteType,
		events.CaptureRetiredType}, Purpose: "brings rollouts that ran elsewhere"},
	{Role: RoleProduct, States: []events.Type{events.QuerySubmittedType, events.FeedbackRecordedType},
		Purpose: "brings users' queries and what users made of the answers"},
	{Role: RoleServer, States: []events.Type{events.WeightsActivatedType}, Policy: true, Mirrors: true,
		Purpose: "serves its policy, takes up new versions, and mirrors them"},
	{Role: RoleTeacher, States: []events.Type{events.TeacherScoredType, events.RolloutHintedType},
		Hears:   []events.Type{events.RolloutScoredType, events.RolloutHintedType},
		Purpose: "says how likely a model of its own finds what was sampled, or where it went wrong, as hints"},
	{Role: RoleWorker, States: []events.Type{events.RolloutObservedType, events.RolloutRatedType}, Takes: true,
		Purpose: "answers the turns of rollouts as their environment, and rates finished ones"},
	{Role: RoleOperator, States: []events.Type{events.RunOpenedType, events.RunPausedType, events.RunResumedType,
		events.RunClosedType, events.RolloutInvalidatedType,
		events.RolloutAnnotatedType, events.RolloutForkedType, events.MarkRecordedType},
		Purpose: "opens, pauses and closes its run"},
}

// Outsider is a user who submits facts of one run.
type Outsider struct {
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Run    string `json:"run"`
	Feed   string `json:"feed,omitempty"`
	Policy string `json:"policy,omitempty"`
}

// OutsiderPermissions are those of an outsider, in the account of outsiders: stating what its role
// states, reading its run, hearing of new facts of its feed, and answers. A policy's versions are
// in the catalogue, so who names one may read that too.
func OutsiderPermissions(o Outsider) (Permissions, error) {
	i := slices.IndexFunc(Roles, func(r RoleSpec) bool { return r.Role == o.Role })
	if i < 0 {
		return Permissions{}, fmt.Errorf("there is no role %q", o.Role)
	}
	spec := Roles[i]
	for what, name := range map[string]string{"name": o.Name, "run": o.Run, "feed": o.Feed, "policy": o.Policy} {
		needed := what == "name" || what == "run" || what == "feed" && spec.Feed ||
			what == "policy" && spec.Policy && !spec.Feed
		if name == "" && !needed {
			continue
		}
		if !runfile.ValidToken(name) || what == "run" && !events.ValidRun(name) {
			return Permissions{}, fmt.Errorf("%s %q of a %s: use letters, digits, - and _, at most 64", what, name,
				o.Role)
		}
	}
	g := &grants{}
	g.subscribe(OutsideInbox+o.Name+".>", events.SubjectPrefix+o.Run+".run.*.*")
	g.publish("$JS.API.STREAM.INFO."+events.RunStream(o.Run), "$JS.API.STREAM.MSG.GET."+events.RunStream(o.Run))
	for _, t := range spec.States {
		run, entity := o.Run, "*"
		switch t.Kind() {
		case events.BatchReadyType.Kind():
			entity = o.Feed
		case events.WeightsSubmittedType.Kind():
			run, entity = events.Catalogue, o.Policy
		case events.RunOpenedType.Kind():
			entity = o.Run
		}
		if entity != "" {
			g.publish(events.IntakePrefix + run + "." + t.Kind() + "." + entity + "." + t.Name())
		}
	}
	for _, t := range spec.Hears {
		g.subscribe(events.SubjectPrefix + o.Run + "." + t.Kind() + ".*." + t.Name())
	}
	if spec.Takes {
		g.subscribe(events.SubjectPrefix + o.Run + "." + events.RolloutStartedType.Kind() + ".*.>")
		for _, c := range ConsumersOf(Environment) {
			name := c.For(o.Run, "").Stream + "." + c.Name
			g.publish("$JS.API.CONSUMER.MSG.NEXT."+name, "$JS.ACK."+name+".>")
		}
	}
	if spec.Mirrors {
		g.publish(MirrorSubject + o.Policy + ".*")
	}
	if o.Feed != "" {
		g.subscribe(events.SubjectPrefix + o.Run + ".batch." + o.Feed + ".*")
	}
	if o.Policy != "" {
		g.publish("$JS.API.STREAM.MSG.GET." + events.CatalogueStream)
		g.subscribe(events.SubjectPrefix+events.Catalogue+".weights."+o.Policy+".*",
			events.SubjectPrefix+o.Run+".weights."+o.Policy+".*")
	}
	return g.permissions(), nil
}

// OutsideServices are the subjects that the account of outsiders may ask the plane's for;
// OutsideStreams those that it hears. Answers to what crosses accounts go back to who asked, and to
// nowhere else: within one account a user could have the server put its answer on any subject.
//
// No outsider may ask for $JS.API.INFO. But a server gives an account that does not import it an
// interface to JetStream of its own, which would answer each question, too, that the account has no
// JetStream: whichever answer is first would count.
func OutsideServices() []string {
	services := []string{events.IntakePrefix + ">", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.INFO"}
	for _, c := range ConsumersOf(Environment) {
		services = append(services, "$JS.API.CONSUMER.MSG.NEXT.*."+c.Name, "$JS.ACK.*."+c.Name+".>")
	}
	return services
}

// workersConsumers are the subjects behind a prefix that name the consumers of
// users' workers, in any run.
func workersConsumers(prefix string) []string {
	var subjects []string
	for _, c := range ConsumersOf(Environment) {
		subjects = append(subjects, prefix+anyRun+"."+c.Name+"."+c.filterTokens())
	}
	return subjects
}

// OutsideStreams are the subjects of the plane's account that the account of outsiders may hear.
func OutsideStreams() []string { return []string{events.SubjectPrefix + ">", OutsideInbox + ">"} }

// OutsideSays are the subjects of the account of outsiders that the plane's hears.
func OutsideSays() []string { return []string{MirrorSubject + "*.*"} }
