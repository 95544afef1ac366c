package advantage

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/advantage"
)

// Whatever is read as rewards has advantages of the same shape, in JSON.
func FuzzRewards(f *testing.F) {
	for _, seed := range []string{`{"groups":[[1,0,null],[0.5,1]]}`, `{"groups":[[]],"tokens":[[]]}`,
		`{"groups":[[1e308,-1e308]],"tokens":[[1,9007199254740993]]}`, `{"groups":null}`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := ParseRewards(data)
		if err != nil {
			return
		}
		for _, name := range advantage.Names() {
			e, err := advantage.New(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := in.Advantages(e)
			if _, err := json.Marshal(out); err != nil || len(out) != len(in.Groups) {
				t.Fatalf("%s of %s: %v", name, data, err)
			}
			for g, rewards := range in.Groups {
				for i, r := range rewards {
					if advantage.Scored(r) != (out[g][i] != nil) {
						t.Fatalf("%s of %s: member %d of group %d", name, data, i, g)
					}
				}
			}
		}
	})
}
