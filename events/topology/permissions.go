package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// This file turns the topology table into what each of its services may do on a NATS server:
// publish what it states, fetch from its own consumers, and read the log. Outsiders may send
// submissions and read their own run.

// Permissions are the subjects that a user of the server may publish and subscribe to. What is
// denied counts more than what is allowed.
type Permissions struct {
	Publish     []string `json:"publish"`
	DenyPublish []string `json:"deny_publish,omitempty"`
	Subscribe   []string `json:"subscribe"`
}

// Inboxes: everybody has a space of his own for answers, so nobody reads another one's.
const (
	inboxPrefix = "_INBOX."
	// OutsideInbox begins the inboxes of outsiders, which live in an account of their own.
	OutsideInbox = inboxPrefix + "outside."
)

// ServiceInbox is the prefix of a service's inboxes.
func ServiceInbox(service string) string { return inboxPrefix + service }

// Participants are the outsiders that come with Rondo: they fold or consume nothing that decides,
// and submit every fact to the intake.
const (
	Policy  = "policy"
	Trainer = "trainer"
	Gateway = "gateway"
	// Dashboard is the pages in a browser.
	Dashboard = "dashboard"
	// Admin is the command line.
	Admin = "admin"
)

// ParticipantSpec is an outsider that comes with Rondo.
type ParticipantSpec struct {
	Name string
	// States are the types that it submits to the intake, in any run.
	States []events.Type
	// Follows are the types of facts that it follows.
	Follows []events.Type
	// Folds: it reads and follows whole runs.
	Folds bool
	// Redrives: it may submit again, as it was, whatever an outsider has submitted.
	Redrives bool
	// Subscribes are subjects of core NATS.
	Subscribes []string
	Purpose    string
}

// Participants is the table of outsiders that come with Rondo.
var Participants = []ParticipantSpec{
	{Name: Policy, States: []events.Type{events.WeightsActivatedType},
		Follows: []events.Type{events.WeightsPublishedType}, Purpose: "serves the built-in policy"},
	{Name: Trainer, States: []events.Type{events.BatchConsumedType, events.BatchCheckpointedType,
		events.BatchRewoundType, events.WeightsSubmittedType},
		Follows: []events.Type{events.BatchReadyType}, Purpose: "the reference trainer"},
	{Name: Gateway, States: []events.Type{events.GroupOpenedType, events.RolloutStartedType, events.TurnSampledType,
		events.WorkspaceCalledType, events.RolloutFinishedType, events.RolloutScoredType,
		events.RolloutFailedType}, Follows: []events.Type{events.WorkspaceAnsweredType},
		Purpose: "records what foreign harnesses do"},
	{Name: Dashboard, States: []events.Type{events.RunPausedType, events.RunResumedType, events.RunClosedType,
		events.MarkRecordedType}, Folds: true, Redrives: true,
		Subscribes: []string{PresenceSubject + "*.*", MirrorSubject + "*.*"},
		Purpose:    "shows runs on pages; for who shows its token it pauses, resumes and cancels them, marks rollouts, and submits dead letters again"},
}

// apiPrefix begins requests to JetStream.
const apiPrefix = "$JS.API."

// InDomain adds the same rights over JetStream under a domain's name. A server without JetStream of
// its own puts the name into its clients' requests before it looks at their rights.
func (p Permissions) InDomain(domain string) Permissions {
	both := func(subjects []string) []string {
		all := slices.Clone(subjects)
		for _, s := range subjects {
			if request, ok := strings.CutPrefix(s, apiPrefix); ok {
				all = append(all, "$JS."+domain+".API."+request)
			}
		}
		return all
	}
	p.Publish, p.DenyPublish = both(p.Publish), both(p.DenyPublish)
	return p
}

// anyRun stands for every run in a subject; it also matches the catalogue.
const anyRun = "*"

// statedOn are the subjects on which facts of a type stand, and those that the same wildcards
// match and that are not meant.
func statedOn(t events.Type) (allow, deny string) {
	in := func(run string) string {
		route := ""
		if t.Routed() {
			route = ".*"
		}
		return events.SubjectPrefix + run + "." + t.Kind() + ".*." + t.Name() + route
	}
	switch runs, catalogue := t.Place(); {
	case !runs:
		return in(events.Catalogue), ""
	case !catalogue:
		return in(anyRun), in(events.Catalogue)
	}
	return in(anyRun), ""
}

// grants collects permissions.
type grants struct{ Permissions }

func (g *grants) publish(subjects ...string) { g.Publish = append(g.Publish, subjects...) }
func (g *grants) deny(subjects ...string)    { g.DenyPublish = append(g.DenyPublish, subjects...) }

func (g *grants) subscribe(subjects ...string) { g.Subscribe = append(g.Subscribe, subjects...) }

func (g *grants) permissions() Permissions {
	for _, list := range []*[]string{&g.Publish, &g.DenyPublish, &g.Subscribe} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return g.Permissions
}

// states lets a service append facts of its types to their chains.
func (g *grants) states(types []events.Type) {
	for _, t := range types {
		allow, deny := statedOn(t)
		g.publish(allow)
		if deny != "" {
			g.deny(deny)
		}
	}
}

// reads lets a user look at the log: at single facts of every run, and, by consumers that the
// server pushes to the user's inbox, at the catalogue's openings, which everybody follows.
// Other streams must be named.
func (g *grants) reads(others ...string) {
	g.publish("$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.*")
	for _, stream := range []string{events.IntakeStream, events.DeadStream, LeaseStream} {
		if slices.Contains(others, stream) {
			continue
		}
		g.deny("$JS.API.STREAM.MSG.GET."+stream, "$JS.API.DIRECT.GET."+stream)
	}
	for _, stream := range []string{events.CatalogueStream, events.IntakeStream, events.DeadStream, LeaseStream} {
		if !slices.Contains(g.Publish, PurgeSubject+stream) {
			g.deny(PurgeSubject + stream) // who may purge runs purges nothing else, in no process
		}
		if stream != events.IntakeStream {
			g.deny(consumerDelete + stream + ".*")
		}
	}
	g.follows(events.CatalogueStream, "") // a run's opening is found by reading all, the next ones by following
	g.follows(events.CatalogueStream, RunFilter)
	g.publish("$JS.FC.>")
}

// follows lets a user make consumers under names of his own that push what a filter selects ("":
// everything) of a stream. Existing consumers keep their names to themselves: see denyConsumers.
func (g *grants) follows(stream, filter string) {
	create := "$JS.API.CONSUMER.CREATE." + stream + ".*"
	if filter != "" {
		create += "." + filter
	}
	g.publish(create)
}

// streamToken is a consumer's stream, or * for those that every run has.
func (c ConsumerSpec) streamToken() string {
	if c.PerRun() {
		return anyRun
	}
	return c.Stream
}

// nameToken is a consumer's name, or * for those of routed types and of queues: a wildcard
// stands for whole tokens only.
func (c ConsumerSpec) nameToken() string {
	if strings.Contains(c.Name, routePlaceholder) || c.Shared() {
		return anyRun
	}
	return c.Name
}

// filterTokens is the filter of a consumer in any run and on any route.
func (c ConsumerSpec) filterTokens() string {
	run := anyRun
	if !c.PerRun() {
		run, _ = events.RunOfStream(c.Stream)
	}
	f := events.SubjectPrefix + run + "." + c.Type.Kind() + ".*." + c.Type.Name()
	if c.Type.Routed() {
		f += ".*"
	}
	return f
}

// consumes lets a service make its consumers, fetch from them and acknowledge,
// and ask how far they are.
func (g *grants) consumes(service string) {
	for _, c := range ConsumersOf(service) {
		create := "$JS.API.CONSUMER.CREATE." + c.streamToken() + "." + c.nameToken()
		if c.Shared() {
			create += ".>"
		}
		if c.Type != "" {
			create += "." + c.filterTokens()
		}
		if c.Shared() {
			g.publish(consumerDelete+c.Stream+".*", "$JS.API.CONSUMER.CREATE."+c.Stream+"."+c.ForStrangers(nil).Name)
		}
		g.publish(create, "$JS.API.CONSUMER.INFO."+c.streamToken()+"."+c.nameToken(),
			"$JS.API.CONSUMER.MSG.NEXT."+c.streamToken()+"."+c.nameToken(),
			"$JS.ACK."+c.streamToken()+"."+c.nameToken()+".>")
	}
}

// denyConsumers keeps a user away from the consumers of all services but one ("": of all): from
// changing them, fetching and acknowledging. Consumers of routed types have names that no wildcard
// can tell; only their own service may use unknown names.
func (g *grants) denyConsumers(service string) {
	for _, c := range Consumers {
		create := "$JS.API.CONSUMER.CREATE." + anyRun + "." + c.Name
		switch {
		case c.Shared() && c.Service != service: // all consumers of its stream are its service's
			g.deny("$JS.API.CONSUMER.CREATE."+c.Stream+".>", consumerDelete+c.Stream+".*",
				"$JS.API.CONSUMER.MSG.NEXT."+c.Stream+".>", "$JS.ACK."+c.Stream+".>")
			continue
		case c.nameToken() == anyRun:
			continue
		case c.Service == service && c.Type == "":
			continue
		case c.Service == service:
			g.deny(create) // without its filter it would get everything
			continue
		case c.Service == Environment && service == Intake: // makes it, and no more
			g.deny(create, "$JS.API.CONSUMER.MSG.NEXT."+anyRun+"."+c.Name, "$JS.ACK."+anyRun+"."+c.Name+".>")
			continue
		}
		g.deny(create, create+".>", "$JS.API.CONSUMER.MSG.NEXT."+anyRun+"."+c.Name, "$JS.ACK."+anyRun+"."+c.Name+".>")
	}
}

// leases lets a service that decides make the bucket of leases, and hold its lease in any run, or
// one for each feed of it.
func (g *grants) leases(service string) {
	key := "$KV." + LeaseBucket + ".*." + service
	g.publish("$JS.API.INFO", "$JS.API.STREAM.CREATE."+LeaseStream, "$JS.API.STREAM.UPDATE."+LeaseStream)
	for _, k := range []string{key, key + ".>"} {
		g.publish(k, "$JS.API.DIRECT.GET."+LeaseStream+"."+k)
	}
}

// ServicePermissions are those of a service or participant of the topology.
func ServicePermissions(name string) (Permissions, error) {
	g := &grants{}
	g.subscribe(ServiceInbox(name) + ".>")
	if i := slices.IndexFunc(Participants, func(p ParticipantSpec) bool { return p.Name == name }); i >= 0 {
		g.reads()
		g.participates(Participants[i])
		g.denyConsumers("")
		return g.permissions(), nil
	}
	i := slices.IndexFunc(Services, func(s ServiceSpec) bool { return s.Name == name })
	if i < 0 {
		return Permissions{}, fmt.Errorf("there is no service %q", name)
	}
	s := Services[i]
	g.publish(s.Publishes...)
	g.reads(s.Reads...)
	g.states(s.Emits)
	g.consumes(name)
	g.denyConsumers(name)
	for _, t := range s.Follows {
		g.follows(anyRun, events.SubjectPrefix+anyRun+"."+t.Kind()+".*."+t.Name())
	}
	if s.Deciding {
		g.leases(name)
	}
	if s.Deciding || s.Folds {
		g.follows(anyRun, "")
	}
	g.subscribe(s.Subscribes...)
	return g.permissions(), nil
}

func (g *grants) participates(p ParticipantSpec) {
	if p.Folds {
		g.follows(anyRun, "")
	}
	if p.Redrives {
		for _, t := range outsideTypes() {
			run := anyRun
			if t.CatalogueOnly() {
				run = events.Catalogue
			}
			g.publish(events.IntakePrefix + run + "." + t.Kind() + ".*." + t.Name())
		}
	}
	g.subscribe(p.Subscribes...)
	for _, t := range p.States {
		run := anyRun
		if t.CatalogueOnly() {
			run = events.Catalogue
		}
		g.publish(events.IntakePrefix + run + "." + t.Kind() + ".*." + t.Name())
	}
	for _, t := range p.Follows {
		subject, _ := statedOn(t)
		runs, catalogue := t.Place()
		switch {
		case catalogue: // of both, the catalogue's is the one that is followed
			g.follows(events.CatalogueStream, strings.Replace(subject, anyRun, events.Catalogue, 1))
		case runs:
			g.follows(anyRun, subject)
		}
	}
}

// AdminPermissions are those of the command line: everything within the plane's account.
func AdminPermissions() Permissions {
	return Permissions{Publish: []string{">"}, Subscribe: []string{">"}}
}

// ProcessPermissions are those of a process that runs one or more services.
func ProcessPermissions(services ...string) (Permissions, error) {
	if len(services) == 0 {
		return Permissions{}, errors.New("no service is named")
	}
	g := &grants{}
	denied := map[string]int{}
	for _, name := range services {
		p, err := ServicePermissions(name)
		if err != nil {
			return Permissions{}, err
		}
		g.publish(p.Publish...)
		for _, d := range p.DenyPublish {
			denied[d]++
		}
		g.subscribe(p.Subscribe...)
	}
	for d, n := range denied {
		if n == len(services) { // what one of them may do is not denied to the process
			g.deny(d)
		}
	}
	return g.permissions(), nil
}
