// PDF.js asks for more of the language than Node 20 has; the webview has it.
import 'core-js/full/promise/with-resolvers';
import 'core-js/full/promise/try';
import 'core-js/full/typed-array/to-hex';
import 'core-js/full/typed-array/from-base64';
import 'core-js/full/typed-array/to-base64';
import 'core-js/full/math/sum-precise';
import 'core-js/full/url/parse';
import 'core-js/full/map/get-or-insert-computed';
import 'core-js/full/map/get-or-insert';
import 'core-js/full/iterator';
