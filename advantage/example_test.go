package advantage_test

import (
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/advantage"
)

// A run file names an estimator and its parameters.
func Example() {
	estimator, err := advantage.New("std_normalised", nil)
	if err != nil {
		log.Fatal(err)
	}
	advantages, _ := estimator.Group([]float64{1, 1, 0, 0}, 0)
	for _, a := range advantages {
		fmt.Printf("%.3f ", a)
	}
	// Output:
	// 0.866 0.866 -0.866 -0.866
}

// Each reward is compared with the mean of the others of its group.
func ExampleRLOO() {
	fmt.Printf("%.3f\n", advantage.RLOO([]float64{1, 0, 0, 0}))
	// Output:
	// [1.000 -0.333 -0.333 -0.333]
}

// A rollout of at most 1024 tokens loses nothing up to 768 tokens, and 1 at 1024.
func ExampleSoftOverlong() {
	for _, tokens := range []int{500, 896, 1024, 2000} {
		fmt.Println(tokens, advantage.SoftOverlong(tokens, 1024, 256, 1))
	}
	// Output:
	// 500 0
	// 896 -0.5
	// 1024 -1
	// 2000 -1
}
