package evaluation_test

import (
	"fmt"

	"github.com/rondo-rl/rondo/evaluation"
)

// tried are the attempts at tasks: a plus is a pass.
func tried(outcomes ...string) (attempts []evaluation.Attempt) {
	for task, passes := range outcomes {
		for try, outcome := range passes {
			a := evaluation.Attempt{Rollout: fmt.Sprintf("g%d-%d", task, try), Task: fmt.Sprintf("task-%d", task)}
			if outcome == '+' {
				a.Reward = 1
			}
			attempts = append(attempts, a)
		}
	}
	return attempts
}

func Example() {
	before, after := tried("----", "+---", "----", "+---", "++--", "----"),
		tried("+---", "++--", "+---", "+++-", "+++-", "+---")
	s, err := evaluation.Summarise("after", after, evaluation.Options{K: []int{1, 4}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range s.PassAt {
		fmt.Printf("pass@%d %.3f\n", p.K, p.Estimate.Value)
	}
	c, err := evaluation.Compare(after, before, "after", "before", evaluation.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	d := c.PassAt[0]
	fmt.Printf("%s than before by %.3f: %d tasks won, %d lost, p = %.3f\n", d.Verdict,
		d.Difference.Value, d.Wins, d.Losses, d.P)
	// Output:
	// pass@1 0.458
	// pass@4 1.000
	// better than before by 0.292: 6 tasks won, 0 lost, p = 0.031
}

func ExamplePassAtK() {
	fmt.Printf("%.3f\n", evaluation.PassAtK(200, 10, 10)) // of 200 attempts 10 passed
	// Output: 0.409
}
