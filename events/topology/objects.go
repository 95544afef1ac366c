package topology

import (
	"fmt"
	"slices"
	"strings"
)

// This file is the table of who reads and writes what in the object store, as the topology is of
// the log. S3 policies are made from it.

// Anybody stands for every service, participant and outsider.
const Anybody = "*"

// ObjectSpec is a place in the object store. Who writes there also reads there: an upload first
// looks whether the object is there.
type ObjectSpec struct {
	// Prefix begins the keys; <run>, <feed> and <policy> are one segment
	// each. Empty: the whole store.
	Prefix string
	// Services, participants and Admin, or Anybody.
	Reads, Writes, Deletes, Lists []string
	// Outsiders by their roles, with their run, feed and policy in the prefix.
	RoleReads, RoleWrites []Role
	Purpose               string
}

// Objects is the table of places.
var Objects = []ObjectSpec{
	{Prefix: "blobs/", Writes: []string{Anybody},
		Purpose: "large bodies of facts, workspaces, logs, submitted weights, by digest"},
	{Prefix: "runs/<run>/trajectories/", Writes: []string{Generator, ToolRunner, Gateway},
		Reads: []string{TrainerFeeder, Intake, Teacher, Dashboard}, RoleWrites: []Role{RoleHarness},
		RoleReads: []Role{RoleTeacher, RoleWorker}, Purpose: "a file for each rollout"},
	{Prefix: "runs/<run>/batches/<feed>/", Writes: []string{TrainerFeeder}, Reads: []string{Trainer},
		RoleReads: []Role{RoleTrainer}, Purpose: "what a trainer takes"},
	{Prefix: "runs/<run>/log/", Writes: []string{Archiver},
		Reads: []string{Intake, QuerySampler, Generator, ToolRunner, Scorer, AdvantageCalculator, TrainerFeeder,
			DeadLetters, Gateway, Dashboard},
		Purpose: "a run's archive, in which services read what has left the run's stream"},
	{Prefix: "runs/<run>/tools/", Writes: []string{ToolRunner},
		Purpose: "cached answers of tools, shared by the tool runners"},
	{Prefix: "weights/<policy>/", Writes: []string{WeightPublisher}, Reads: []string{Policy, Trainer},
		RoleReads: []Role{RoleTrainer, RoleServer},
		Purpose:   "published versions, and the pointer to the current one"},
	{Prefix: weightFiles, Writes: []string{WeightPublisher, Trainer}, Reads: []string{Policy},
		RoleWrites: []Role{RoleTrainer}, RoleReads: []Role{RoleServer},
		Purpose: "files of weights by digest, put there by the policy's trainers"},
	{Prefix: "index/", Writes: []string{IndexUpdater, ToolRunner}, Lists: []string{IndexUpdater, ToolRunner},
		Purpose: "the sealed indexes of repositories and of tasks' snapshots"},
	{Prefix: "agents/", Reads: []string{ToolRunner},
		Purpose: "the layers in which agents are installed; an admin builds them"},
	{Prefix: ProbePrefix, Writes: []string{Anybody}, Deletes: []string{Anybody},
		Purpose: "test objects of the check that runs before the store is used"},
	{Prefix: "", Writes: []string{Admin}, Deletes: []string{Admin}, Lists: []string{Admin}, Purpose: "everything"},
}

// ProbePrefix begins the keys of objects that only try out a store.
const ProbePrefix = "rondo-probe/"

// ObjectRights are patterns of the keys that somebody may read, write, delete and list; * stands
// for any characters, / too.
type ObjectRights struct {
	Read   []string `json:"read"`
	Write  []string `json:"write"`
	Delete []string `json:"delete"`
	List   []string `json:"list"`
}

func (r *ObjectRights) add(other ObjectRights) {
	for to, from := range map[*[]string][]string{&r.Read: other.Read, &r.Write: other.Write,
		&r.Delete: other.Delete, &r.List: other.List} {
		*to = append(*to, from...)
		slices.Sort(*to)
		*to = slices.Compact(*to)
	}
}

// ProcessObjects are the rights of a process that runs one or more services: in all
// runs, feeds and policies.
func ProcessObjects(services ...string) (ObjectRights, error) {
	rights := ObjectRights{}
	for _, name := range services {
		if !belongs(name) {
			return ObjectRights{}, fmt.Errorf("there is no service %q", name)
		}
		has := func(names []string) bool {
			return slices.Contains(names, name) || name != Admin && slices.Contains(names, Anybody)
		}
		for _, s := range Objects {
			rights.add(s.rights(strings.NewReplacer("<run>", "*", "<feed>", "*", "<policy>", "*"), has(s.Reads),
				has(s.Writes), has(s.Deletes), has(s.Lists)))
		}
	}
	return rights, nil
}

// belongs says whether a name is one of the plane's.
func belongs(name string) bool {
	return name == Admin || slices.ContainsFunc(Services, func(s ServiceSpec) bool { return s.Name == name }) ||
		slices.ContainsFunc(Participants, func(p ParticipantSpec) bool { return p.Name == name })
}

// OutsiderObjects are the rights of an outsider: in its run, feed and policy. What it did not
// name it has no right to.
func OutsiderObjects(o Outsider) (ObjectRights, error) {
	if _, err := OutsiderPermissions(o); err != nil { // it checks the names
		return ObjectRights{}, err
	}
	rights := ObjectRights{}
	for _, s := range Objects {
		if strings.Contains(s.Prefix, "<feed>") && o.Feed == "" ||
			strings.Contains(s.Prefix, "<policy>") && o.Policy == "" {
			continue
		}
		rights.add(s.rights(strings.NewReplacer("<run>", o.Run, "<feed>", o.Feed, "<policy>", o.Policy),
			slices.Contains(s.RoleReads, o.Role),
			slices.Contains(s.RoleWrites, o.Role) ||
				slices.Contains(s.Writes, Anybody), slices.Contains(s.Deletes, Anybody), false))
	}
	return rights, nil
}

func (s ObjectSpec) rights(names *strings.Replacer, read, write, remove, list bool) ObjectRights {
	pattern := []string{names.Replace(s.Prefix) + "*"}
	only := func(may bool) []string {
		if may {
			return pattern
		}
		return nil
	}
	return ObjectRights{Read: only(read || write), Write: only(write), Delete: only(remove), List: only(list)}
}
