package evaluation

import "math"

// PassAtK is the probability that k of n attempts, drawn without replacement, hold a pass when c of
// the n passed: 1 − C(n−c, k) / C(n, k), the unbiased estimate of pass@k (Chen et al. 2021,
// arXiv:2107.03374, equation 1), as a product whose factors are all probabilities, so that nothing
// overflows. It is NaN where there is no such draw: k < 1, k > n, c < 0 or c > n.
func PassAtK(n, c, k int) float64 {
	if k < 1 || k > n || c < 0 || c > n {
		return math.NaN()
	}
	if k == 1 {
		return float64(c) / float64(n)
	}
	none := 1.0        // the probability that no draw is a pass
	for i := range k { // a factor of 0 says that there are not so many without a pass
		none *= float64(n-c-i) / float64(n-i)
	}
	return 1 - none
}
