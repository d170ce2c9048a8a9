package expression

// node is a node of the tree of an expression. Offsets are in bytes of the whole text.
type node interface {
	eval(ev *evaluation) (any, error)
}

type (
	// literal is a constant.
	literal struct {
		value any
	}

	// interpolated is a string literal with expressions inside. A part is a string or a node.
	interpolated struct {
		parts []any
	}

	// path is a dotted name without expressions inside.
	path struct {
		parts  []string
		offset int
		end    int
		// hyphen is the name that was probably meant, if a hyphen follows.
		hyphen string
	}

	// computed is a name whose text an expression makes a part of. A part is a string or a
	// node. x is nil at the begin of a dotted name.
	computed struct {
		x      node
		parts  []any
		offset int
		safe   bool
	}

	// member is x.name.
	member struct {
		x      node
		name   string
		offset int
		safe   bool
	}

	// index is x[i].
	index struct {
		x, i   node
		offset int
	}

	// call is the method x.name(args).
	call struct {
		x      node
		name   string
		args   []node
		offset int
		safe   bool
	}

	// function is name(args). The name of a functor has a dot, for example json.select.
	function struct {
		name   string
		args   []node
		offset int
		// run is nil if there is no such function.
		run *functor
	}

	unary struct {
		operator string
		x        node
		offset   int
	}

	binary struct {
		operator string
		x, y     node
		offset   int
	}

	// ternary is condition ? yes : no. yes is nil for the form condition ?: no.
	ternary struct {
		condition, yes, no node
	}

	// list is [a, b], or {a, b} if it is a set.
	list struct {
		items []node
		set   bool
	}

	// mapping is {a: b}.
	mapping struct {
		keys, values []node
		offset       int
	}

	// delimited is an outermost expression of a condition.
	delimited struct {
		x          node
		begin, end int
	}
)
