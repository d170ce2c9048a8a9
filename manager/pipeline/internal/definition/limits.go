package definition

// The bounds of a document. Real pipelines stay far below them.
const (
	maxText     = 3 << 20 // bytes of one file
	maxDepth    = 100     // levels of lists and maps
	maxNodes    = 400_000 // values of one document with its aliases and templates expanded
	maxMarks    = 400_000 // line ends, commas and opening brackets of one file
	maxProblems = 500     // problems of one read
	maxSets     = 50      // input sets of one read
	maxValue    = 1 << 20 // bytes of one value of Options.Inputs
	maxNesting  = 10      // templates within templates
	maxInputs   = 10_000  // runtime inputs of one pipeline
	maxPath     = 2048    // bytes of a path
	maxAxes     = 50      // axes of a matrix
)
