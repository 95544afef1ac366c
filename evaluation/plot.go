package evaluation

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a drawing in the units of its view box, laid out here so that the
// template only writes it down.
type plot struct {
	Title, Of     string
	XTitle        string
	Width, Height float64
	X, Y          axis
	Bars          []bar
	Intervals     []interval
	Points        []point
	Lines, Bands  []shape
	Legend        []legend
}

// axis maps values from Least to Most to From to To.
type axis struct {
	Least, Most, From, To float64
	Ticks                 []tick
}

type tick struct {
	At    float64
	Label string
}

type bar struct {
	Series              int
	X, Y, Width, Height float64
	Hint                string
}

type interval struct {
	Series          int
	X, Bottom, High float64
}

type point struct {
	Series int
	X, Y   float64
	Hint   string
}

// shape is a line, or the outline of an area.
type shape struct {
	Series int
	Points string
}

type legend struct {
	Series int
	Name   string
}

// colours is how many series the style sheet tells apart.
const colours = 4

func series(i int) int { return i % colours }

// The frame within a plot; what is around it is for labels.
const (
	plotWidth, plotHeight = 440, 220
	plotLeft, plotRight   = 52, plotWidth - 12
	plotTop, plotBottom   = 12, plotHeight - 40
)

func newPlot(title string, x, y axis) plot {
	x.From, x.To, y.From, y.To = plotLeft, plotRight, plotBottom, plotTop
	for _, a := range []*axis{&x, &y} {
		for i, t := range a.Ticks {
			a.Ticks[i].At = a.position(t.At)
		}
	}
	return plot{Title: title, Width: plotWidth, Height: plotHeight, X: x, Y: y}
}

// position is where a value stands, to a tenth of a unit, which no screen shows.
func (a axis) position(v float64) float64 {
	place := (a.From + a.To) / 2
	if a.Most > a.Least {
		place = a.From + (v-a.Least)/(a.Most-a.Least)*(a.To-a.From)
	}
	return math.Round(min(max(place, min(a.From, a.To)), max(a.From, a.To))*10) / 10
}

// parts is the axis of what lies between 0 and 1.
func parts() axis { return niceAxis(0, 1, false) }

// niceAxis covers the values with ticks at multiples of 1, 2, 2.5 or 5 times a power of ten;
// whole: at whole numbers only.
func niceAxis(least, most float64, whole bool) axis {
	if most <= least {
		most = least + max(1e-3, math.Abs(least)/10)
	}
	step := math.Pow(10, math.Floor(math.Log10((most-least)/5)))
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if wide := factor * step; (most-least)/wide <= 5 && (!whole || wide == math.Trunc(wide)) {
			step = wide
			break
		}
	}
	if whole {
		step = max(step, 1)
	}
	a := axis{Least: step * math.Floor(least/step+1e-9), Most: step * math.Ceil(most/step-1e-9)}
	for i := range int(math.Round((a.Most-a.Least)/step)) + 1 {
		v := a.Least + float64(i)*step
		a.Ticks = append(a.Ticks, tick{v, label(v, step)})
	}
	return a
}

// label writes a tick with as many digits as its step has.
func label(v, step float64) string {
	if math.Abs(v) >= 1e6 || step < 1e-4 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strconv.FormatFloat(v, 'f', 4, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// estimate draws a point with its interval.
func (p *plot) estimate(of int, x float64, e Estimate, hint string) {
	p.Intervals = append(p.Intervals, interval{series(of), x, p.Y.position(e.Low), p.Y.position(e.High)})
	p.Points = append(p.Points, point{series(of), x, p.Y.position(e.Value), hint})
}

// curve joins estimates by a line over their intervals' band.
func (p *plot) curve(of int, at []float64, estimates []Estimate) {
	var line, upper, lower strings.Builder
	for i, e := range estimates {
		x := p.X.position(at[i])
		fmt.Fprintf(&line, "%g,%g ", x, p.Y.position(e.Value))
		fmt.Fprintf(&upper, "%g,%g ", x, p.Y.position(e.High))
	}
	for i, estimate := range slices.Backward(estimates) {
		fmt.Fprintf(&lower, "%g,%g ", p.X.position(at[i]), p.Y.position(estimate.Low))
	}
	p.Lines = append(p.Lines, shape{series(of), strings.TrimSpace(line.String())})
	p.Bands = append(p.Bands, shape{series(of), strings.TrimSpace(upper.String() + lower.String())})
}
