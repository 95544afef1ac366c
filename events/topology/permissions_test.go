package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// Who is in the table has permissions, nobody may publish everything, and each hears nothing but
// its own inbox and what the table says.
func TestServicePermissions(t *testing.T) {
	var names []string
	for _, s := range Services {
		names = append(names, s.Name)
	}
	for _, p := range Participants {
		names = append(names, p.Name)
	}
	for _, name := range names {
		p, err := ServicePermissions(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, subject := range p.Publish {
			if subject == ">" || strings.HasPrefix(subject, "*") || strings.HasPrefix(subject, "rondo.>") ||
				strings.HasPrefix(subject, "rondo.v1.>") || strings.HasPrefix(subject, "$JS.API.>") {
				t.Errorf("%s may publish %s", name, subject)
			}
		}
		if !slices.Contains(p.Subscribe, ServiceInbox(name)+".>") {
			t.Errorf("%s cannot hear answers: %q", name, p.Subscribe)
		}
	}
	if _, err := ServicePermissions("painter"); err == nil {
		t.Error("a service that there is not has permissions")
	}
	if _, err := ProcessPermissions(); err == nil {
		t.Error("a process of no service has permissions")
	}
	both, err := ProcessPermissions(Generator, Scorer)
	if err != nil || slices.ContainsFunc(both.DenyPublish,
		func(s string) bool { return strings.Contains(s, "scorer-v1") && strings.Contains(s, "NEXT") }) {
		t.Errorf("a process of two services is denied what one of them does: %v, %q", err, both.DenyPublish)
	}
}

func TestOutsiderPermissions(t *testing.T) {
	good := Outsider{Name: "torch", Role: RoleTrainer, Run: "r", Feed: "main", Policy: "small"}
	for what, change := range map[string]func(*Outsider){
		"role":   func(o *Outsider) { o.Role = "king" },
		"name":   func(o *Outsider) { o.Name = "" },
		"run":    func(o *Outsider) { o.Run = "*" },
		"feed":   func(o *Outsider) { o.Feed = ">" },
		"policy": func(o *Outsider) { o.Policy = "a.b" },
	} {
		t.Run(what, func(t *testing.T) {
			o := good
			change(&o)
			if _, err := OutsiderPermissions(o); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for _, run := range []string{events.Catalogue, "IN", "DEAD", ""} {
		o := good
		o.Run = run
		if _, err := OutsiderPermissions(o); err == nil {
			t.Errorf("an outsider of run %q", run)
		}
	}
	// An outsider's permissions travel in the line in which its client says who it is, of which
	// servers take 4096 bytes.
	long := strings.Repeat("x", 64)
	for _, role := range Roles {
		p, err := OutsiderPermissions(Outsider{Name: long, Role: role.Role, Run: long, Feed: long, Policy: long})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Join(slices.Concat(p.Publish, p.Subscribe), `","`)) * 4 / 3; n > 3000 {
			t.Errorf("the permissions of a %s take %d bytes", role.Role, n)
		}
	}
}

// TestInDomain: what is allowed and what is denied holds for requests with the domain's name, too,
// and nothing else is added.
func TestInDomain(t *testing.T) {
	plain := Permissions{Publish: []string{"$JS.API.STREAM.INFO.*", "$JS.ACK.>", "rondo.v1.*.turn.*.sampled"},
		DenyPublish: []string{"$JS.API.STREAM.PURGE.X"}, Subscribe: []string{"_INBOX.far.>"}}
	want := Permissions{Publish: append(slices.Clone(plain.Publish), "$JS.home.API.STREAM.INFO.*"),
		DenyPublish: append(slices.Clone(plain.DenyPublish), "$JS.home.API.STREAM.PURGE.X"), Subscribe: plain.Subscribe}
	if got := plain.InDomain("home"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestWhoOpensGroupsStatesTheirRollouts: a list of facts has the subject of a group's opening, so
// whoever may publish there states the others, too.
func TestWhoOpensGroupsStatesTheirRollouts(t *testing.T) {
	states := map[string][]events.Type{}
	for _, r := range Roles {
		states[string(r.Role)] = r.States
	}
	for _, p := range Participants {
		states[p.Name] = p.States
	}
	opens := 0
	for who, types := range states {
		if !slices.Contains(types, events.GroupOpenedType) {
			continue
		}
		opens++
		for _, typ := range []events.Type{events.RolloutStartedType, events.RolloutFinishedType,
			events.RolloutScoredType, events.RolloutFailedType} {
			if !slices.Contains(types, typ) {
				t.Errorf("%s may open groups, and could state %s in a list", who, typ)
			}
		}
	}
	if opens == 0 {
		t.Error("nobody opens groups")
	}
}
