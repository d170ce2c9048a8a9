package main

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
)

// The sizes of a drawing in pixels. The names of the lines are at the right.
const (
	width, height          = 720, 360
	left, right            = 80, 190
	top, bottom            = 44, 56
	plotWidth, plotHeight  = width - left - right, height - top - bottom
	labelHeight, pointSize = 16, 3.5
)

// colours are told apart by most people who are colour-blind.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// svg draws the points. The y axis is logarithmic, from a power of ten to another.
func (d *drawing) svg() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text := func(x, y float64, anchor, style, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
	}
	text(left, 20, "start", `font-size="14" font-weight="bold"`, d.title)
	text(left, 36, "start", `fill="#555555"`, d.y)
	low, high := d.decades()
	atY := func(v float64) float64 {
		return top + plotHeight*(1-(math.Log10(v)-float64(low))/float64(high-low))
	}
	for decade := low; decade <= high; decade++ {
		v := math.Pow10(decade)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", left, left+plotWidth, atY(v), atY(v))
		text(left-8, atY(v)+4, "end", `fill="#555555"`, number(v))
	}
	atX := func(i int) float64 { return left + plotWidth*(float64(i)+0.5)/float64(len(d.positions)) }
	for i, x := range d.positions {
		text(atX(i), top+plotHeight+20, "middle", `fill="#555555"`, grouped(x))
	}
	text(left+plotWidth/2, height-12, "middle", `fill="#555555"`, d.x)
	for i, name := range slices.Sorted(maps.Keys(d.series)) {
		colour := colours[i%len(colours)]
		var line bytes.Buffer
		for j, v := range d.series[name] {
			if v > 0 {
				fmt.Fprintf(&line, "%.1f,%.1f ", atX(j), atY(v))
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s"><title>%s, %s: %s</title></circle>`+"\n",
					atX(j), atY(v), pointSize, colour, html.EscapeString(name), html.EscapeString(d.positions[j]), number(v))
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", bytes.TrimSpace(line.Bytes()), colour)
		y := float64(top + labelHeight*(i+1))
		fmt.Fprintf(&b, `<rect x="%d" y="%.1f" width="10" height="10" fill="%s"/>`+"\n", left+plotWidth+14, y-9, colour)
		text(left+plotWidth+30, y, "start", "", name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// decades returns the powers of ten around all values.
func (d *drawing) decades() (low, high int) {
	low, high = math.MaxInt, math.MinInt
	for _, values := range d.series {
		for _, v := range values {
			if v > 0 {
				low, high = min(low, int(math.Floor(math.Log10(v)))), max(high, int(math.Ceil(math.Log10(v))))
			}
		}
	}
	if low > high {
		return 0, 1 // no value is positive
	}
	return low, max(high, low+1)
}

// number formats a value with the digits that a reader needs.
func number(v float64) string {
	if v >= 1000 {
		return grouped(fmt.Sprintf("%.0f", v))
	}
	return fmt.Sprintf("%.3g", v)
}

// grouped puts commas between the thousands of a number in decimal digits.
func grouped(s string) string {
	for _, c := range s {
		if c < '0' || c > '9' {
			return s
		}
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
