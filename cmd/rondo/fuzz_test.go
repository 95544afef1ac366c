package main

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events/ledger"
)

// Whatever is read as rewards has advantages of the same shape, in JSON.
func FuzzRewards(f *testing.F) {
	for _, seed := range []string{`{"groups":[[1,0,null],[0.5,1]]}`, `{"groups":[[]],"tokens":[[]]}`, `{"groups":[[1e308,-1e308]],"tokens":[[1,9007199254740993]]}`, `{"groups":null}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := parseRewards(data)
		if err != nil {
			return
		}
		for _, name := range advantage.Names() {
			e, err := advantage.New(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := in.advantages(e)
			if _, err := json.Marshal(out); err != nil || len(out) != len(in.groups) {
				t.Fatalf("%s of %s: %v", name, data, err)
			}
			for g, rewards := range in.groups {
				for i, r := range rewards {
					if advantage.Scored(r) != (out[g][i] != nil) {
						t.Fatalf("%s of %s: member %d of group %d", name, data, i, g)
					}
				}
			}
		}
	})
}

// Whatever is read as conditions can be asked.
func FuzzWhere(f *testing.F) {
	for _, seed := range []string{"task=fix-*,reward>=0.9", "before=3,after=1", "rollout!=[a-]", "reward<=", "=", "turns>1e9", "task=\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, where string) {
		conditions, err := parseWhere(where)
		if err != nil {
			return
		}
		for _, c := range conditions {
			c(ledger.Rollout{})
			c(ledger.Rollout{ID: "g000001-0", Task: "fix-a", Scored: true, Reward: 1})
		}
	})
}
