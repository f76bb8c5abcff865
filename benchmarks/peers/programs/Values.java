import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** Reads sequence and id of a record, token by token and no further than needed: no tree of a value is made. */
final class Values {
    private static final VarHandle INT64 = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final JsonFactory JSON = new JsonFactory();

    private Values() {}

    /** Returns the eight bytes of the header {@code seq}. */
    static long sequence(Headers headers) {
        Header header = headers.lastHeader("seq");
        if (header == null || header.value().length != Long.BYTES) {
            throw new IllegalArgumentException("a record without eight bytes in its header seq");
        }
        return (long) INT64.get(header.value(), 0);
    }

    /** Returns the integer at {@code /seq} of a JSON value. */
    static long sequence(byte[] value) {
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken token = parser.nextToken();
                if (name.equals("seq") && token == JsonToken.VALUE_NUMBER_INT) {
                    return parser.getLongValue();
                }
                parser.skipChildren();
            }
        } catch (IOException exc) {
            throw new UncheckedIOException(exc);
        }
        throw new IllegalArgumentException("a record without an integer at /seq in its value");
    }

    /** Returns the header {@code id}. */
    static byte[] id(Headers headers) {
        Header header = headers.lastHeader("id");
        if (header == null || header.value() == null) {
            throw new IllegalArgumentException("a record without an id in its header id");
        }
        return header.value();
    }

    /** Returns {@code /event_id} and {@code /user_id} of a JSON value. */
    static byte[] id(byte[] value) {
        String event = null;
        String user = null;
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                parser.nextToken();
                if (name.equals("event_id")) {
                    event = parser.getText();
                } else if (name.equals("user_id")) {
                    user = parser.getText();
                } else {
                    parser.skipChildren();
                }
                if (event != null && user != null) {
                    return (event + '\0' + user).getBytes(StandardCharsets.UTF_8);
                }
            }
        } catch (IOException exc) {
            throw new UncheckedIOException(exc);
        }
        throw new IllegalArgumentException("a record without /event_id and /user_id in its value");
    }
}
